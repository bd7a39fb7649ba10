"""Curves: reduction, smoothing, axes, drawing, and the widget that shows them."""
