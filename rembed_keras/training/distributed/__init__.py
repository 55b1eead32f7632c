"""Where steps are computed: strategies of TensorFlow, meshes of JAX, several processes."""
