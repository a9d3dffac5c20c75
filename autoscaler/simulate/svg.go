package simulate

import "io"

// SVG draws.
func SVG(w io.Writer, cfg Config, results []Result) error { return nil }
