"""The command line. ``cli`` parses the options of ``gradclip`` and runs the command.

``demo`` and ``report`` are ``gradclip demo``, ``inventory`` is ``gradclip backends``. ``conformance``, ``migrate`` and
``explain`` have the options of :mod:`gradclip.conformance` and :mod:`gradclip.migrate`. ``children`` runs a module in a
separate process.
"""
