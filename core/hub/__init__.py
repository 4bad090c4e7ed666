"""HTTP in: the API users' clients speak, and the administrators' own."""
