"""Live charts of training curves: smoothing, reduction, axes and the widget that draws them."""
