"""gradclip in the place of the natives in other people's test suites: each call is compared with the native and with float64.

``python tools/replaced -- pytest tests`` runs any command so. The natives and what replaces them come from gradclip's own
catalogue. The command's environment needs gradclip and NumPy; ``site`` is put on its path, and starts the hook in each process.
"""
