package cli

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// fetching draws the progress of a fetch on a terminal; nil if out is not one.
func fetching(out io.Writer) func(fetch.Progress) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(p fetch.Progress) {
		if p.Total <= 0 {
			return
		}
		if bar == nil {
			bar = progressbar.NewOptions64(int64(p.Total), progressbar.OptionSetWriter(out), progressbar.OptionShowBytes(true),
				progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
		}
		bar.Describe(p.File)
		bar.ChangeMax64(int64(p.Total))
		if _ = bar.Set64(int64(p.Done)); p.Done >= p.Total {
			bar = nil // a later fetch gets a new one
		}
	}
}
