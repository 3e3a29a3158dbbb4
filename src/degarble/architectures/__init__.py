"""What parameters a model family needs, as data; see `interface.py` for the vocabulary."""

from degarble.architectures.canonical import Prefix, canonical_name, template_of, text_prefix
from degarble.architectures.gguf_config import gguf_config
from degarble.architectures.gguf_names import gguf_canonical
from degarble.architectures.interface import Architecture, ArchitectureError, Container, ParameterTemplate
from degarble.architectures.load import load_architecture, text_config_of

__all__ = [
    "Architecture",
    "ArchitectureError",
    "Container",
    "ParameterTemplate",
    "Prefix",
    "canonical_name",
    "gguf_canonical",
    "gguf_config",
    "load_architecture",
    "template_of",
    "text_config_of",
    "text_prefix",
]
