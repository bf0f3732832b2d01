"""What is wrong with the clipping of a running training: ``gradclip doctor``.

``program`` runs the user's script. ``imports`` starts a framework's watch (``gradclip.backends.<name>.watch``) when the script
imports the framework. A watch writes ``events`` into a ``recorder``. ``findings`` reads the events and says what is wrong;
``report`` prints it.
"""
