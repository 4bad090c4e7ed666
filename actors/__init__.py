"""The middle floor: supervision on Pykka, the edge, and the user actor that owns a jail."""
