package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode()) // govulncheck has printed the reason
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

// run runs the command; an *exec.ExitError is govulncheck's.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("vuln "+verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	switch verb {
	case "check":
		c := check{stdout: stdout, stderr: stderr}
		flags.StringVar(&c.db, "db", "", "the database: `FOLDER, ARCHIVE or URL` (default: "+online+", else "+brought+")")
		flags.StringVar(&c.tool, "govulncheck", "govulncheck", "the `program`")
		if err := flags.Parse(args); err != nil {
			return err
		}
		c.packages = flags.Args()
		return c.run(ctx)
	case "pack":
		var from, date, to string
		flags.StringVar(&from, "from", "", "`folder` of OSV entries, or of the whole database")
		flags.StringVar(&date, "date", "", "`day` of the database, YYYY-MM-DD")
		flags.StringVar(&to, "to", brought, "the archive that is written")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return pack(from, date, to, "go.sum")
	}
	return fmt.Errorf("%q is none of its commands: want check or pack", verb)
}
