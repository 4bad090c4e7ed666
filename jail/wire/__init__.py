"""The protocol both sides of a jail's edge share. Nothing here opens a socket or starts a thread."""
