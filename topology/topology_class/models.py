"""Which models of GPUs a pod accepts: globs, as people write them in `linkwise.dev/gpu-model`. Used by `tables` for the GPUs of a class and by whoever judges models by name."""

from fnmatch import fnmatchcase


def accepts_model(globs: str, model: str | None) -> bool:
    """Tell whether a model matches a glob, or any of several with commas between them, whatever the case; an unknown model matches only ``*``.

    >>> accepts_model("*T4*, *A10*", "Tesla T4"), accepts_model("*", None)
    (True, True)
    """
    patterns = (glob.strip().upper() for glob in globs.split(","))
    return any(pattern == "*" or (model is not None and fnmatchcase(model.upper(), pattern)) for pattern in patterns)
