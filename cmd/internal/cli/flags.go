package cli

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/api"
)

type parsed[T any] struct {
	to    *T
	text  string
	parse func(string) (T, error)
}

func (p *parsed[T]) String() string { return p.text }

func (p *parsed[T]) Set(text string) error {
	v, err := p.parse(text)
	if err == nil {
		*p.to, p.text = v, text
	}
	return err
}

func (p *parsed[T]) Type() string { return "string" }

// addParsed sets nothing for an empty usual value.
func addParsed[T any](s *pflag.FlagSet, to *T, name, usual, usage string, parse func(string) (T, error)) {
	p := &parsed[T]{to: to, parse: parse}
	if usual != "" {
		if err := p.Set(usual); err != nil {
			panic(err) // it is in this program
		}
	}
	s.Var(p, name, usage)
}

func amount[T api.Bytes | int64](text string) (T, error) {
	n, err := api.ParseBytes(text)
	if err != nil || n == 0 {
		return 0, errors.New("want an amount such as 10Gi")
	}
	return T(n), nil
}
