"""What needs a GPU: run by hand on a machine with torch, numpy and safetensors; see each file."""
