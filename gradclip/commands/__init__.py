"""The command line. ``cli`` parses the options of ``gradclip`` and runs the command that was asked for.

``demo`` and ``report`` are ``gradclip demo``, ``inventory`` is ``gradclip backends``. ``conformance``, ``migrate`` and
``explain`` have the options of what is in :mod:`gradclip.conformance` and :mod:`gradclip.migrate`. ``children`` runs a module
in a process of its own.
"""
