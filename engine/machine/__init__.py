"""Facts about this machine, read from files and variables without a framework; `doctor` judges them."""
