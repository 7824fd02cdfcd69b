"""What comes with the package: phantoms, synthetic images, a trained network, and the demo that uses them."""
