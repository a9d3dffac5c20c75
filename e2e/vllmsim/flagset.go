package vllmsim

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// flagOf is a flag that is known: how many values it takes (-1: all up to the next
// flag) and what it does with each.
type flagOf struct {
	values  int
	set     func(string) error
	negated bool // there is a --no- of it
}

// flags read a command line. They allow _ for -, and = before a value, as vLLM's do.
type flags struct {
	known map[string]flagOf
	// bare takes what is no flag: the model.
	bare func(string)
}

// read sets every flag of args.
func (f flags) read(args []string, warnings io.Writer) error {
	for len(args) > 0 {
		name, value, equals := strings.Cut(args[0], "=")
		args = args[1:]
		if !strings.HasPrefix(name, "-") {
			f.bare(name + strings.Repeat("=", min(1, len(value))) + value)
			continue
		}
		name = strings.ReplaceAll(name, "_", "-")
		known, found := f.known[name]
		if yes, is := f.known["--"+strings.TrimPrefix(name, "--no-")]; !found && is && yes.negated {
			if err := yes.set("false"); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if !found {
			if !equals && takesValue(name) && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				value, args = args[0], args[1:]
			}
			fmt.Fprintf(warnings, "vllmsim: %s %s is not simulated and passed over\n", name, value)
			continue
		}
		values := []string{value}
		if !equals {
			n := known.values
			if n < 0 {
				n = slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") })
				if n < 0 {
					n = len(args)
				}
			}
			if n > len(args) || n == 0 && known.values < 0 || n == 1 && strings.HasPrefix(args[0], "--") {
				return fmt.Errorf("%s: expected a value", name)
			}
			values, args = args[:n], args[n:]
			if known.values == 0 {
				values = []string{"true"}
			}
		}
		for _, v := range values {
			if err := known.set(v); err != nil {
				return fmt.Errorf("%s %s: %w", name, v, err)
			}
		}
	}
	return nil
}

// takesValue guesses whether a flag that is not known is followed by a value.
func takesValue(name string) bool {
	for _, p := range []string{"--enable-", "--disable-", "--no-", "--trust-", "--enforce-", "--skip-", "--use-", "--allow-", "--async-"} {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	return true
}

func (f flags) text(into *string, names ...string) {
	f.add(1, func(s string) error { *into = s; return nil }, names...)
}

func (f flags) yes(into *bool, names ...string) {
	f.add(0, func(s string) (err error) { *into, err = strconv.ParseBool(s); return err }, names...)
}

// yesOrNo is yes for one with a --no- too.
func (f flags) yesOrNo(into *bool, names ...string) {
	f.yes(into, names...)
	for _, n := range names {
		f.known[n] = flagOf{f.known[n].values, f.known[n].set, true}
	}
}

func (f flags) number(into *int, names ...string) {
	f.add(1, func(s string) (err error) { *into, err = strconv.Atoi(s); return err }, names...)
}

func (f flags) float(into *float64, names ...string) {
	f.add(1, func(s string) (err error) { *into, err = strconv.ParseFloat(s, 64); return err }, names...)
}

func (f flags) bytes(into *int64, names ...string) {
	f.add(1, func(s string) (err error) { *into, err = Bytes(s); return err }, names...)
}

// rate is bytes a second: "25GB", with or without "/s".
func (f flags) rate(into *float64, names ...string) {
	f.add(1, func(s string) error {
		n, err := Bytes(strings.TrimSuffix(s, "/s"))
		*into = float64(n)
		return err
	}, names...)
}

// duration takes 0 for none at all, since 0 in a [Config] means the default.
func (f flags) duration(into *time.Duration, names ...string) {
	f.add(1, func(s string) error {
		d, err := time.ParseDuration(s)
		if d == 0 {
			d = -1
		}
		*into = d
		return err
	}, names...)
}

func (f flags) texts(into *[]string, names ...string) {
	fresh := true // what the environment says is replaced
	f.add(-1, func(s string) error {
		if fresh {
			*into, fresh = nil, false
		}
		*into = append(*into, s)
		return nil
	}, names...)
}

func (f flags) add(values int, set func(string) error, names ...string) {
	for _, n := range names {
		f.known[n] = flagOf{values: values, set: set}
	}
}

// Bytes reads a size such as 16GiB, 16g, 500MB or 1024.
func Bytes(s string) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(digits):])
	scale, found := map[string]float64{"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 1e3, "m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
		"g": 1 << 30, "gib": 1 << 30, "gb": 1e9, "t": 1 << 40, "tib": 1 << 40, "tb": 1e12}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !found || !(n >= 0) || n*scale > math.MaxInt64/4 {
		return 0, fmt.Errorf("%q is no size: want bytes such as 16GiB or 500MB", s)
	}
	return int64(n * scale), nil
}
