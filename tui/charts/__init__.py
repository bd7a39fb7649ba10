"""Curves: reduction, smoothing, axes, drawing with plotext, and the widget that shows them."""
