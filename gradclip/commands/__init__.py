"""The command line. ``cli`` parses the options of ``gradclip`` and runs the command, whose module has its name.

A command's module has its ``DESCRIPTION`` and its ``EPILOG``, ``add_options`` and ``main``. ``common`` has what several share.
``children`` runs a module in a separate process.
"""
