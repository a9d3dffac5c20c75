// Package flagset makes flags of a struct's fields.
package flagset

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/api"
)

// DurationVarP is [pflag.FlagSet.DurationVarP] for durations with days and weeks, such as 3d.
func DurationVarP(s *pflag.FlagSet, p *time.Duration, name, letter string, usual time.Duration, help string) {
	*p = usual
	s.VarP((*duration)(p), name, letter, help)
}

type duration time.Duration

func (d *duration) Set(text string) error {
	v, err := api.ParseDuration(text)
	if err == nil && v < 0 {
		err = errors.New("want 0 or more")
	}
	*d = duration(v)
	return err
}

// String implements [pflag.Value]. The help does not mention a default of 0.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

// Add adds a flag for each field of the struct with the tag flag, which has the flag's name and, after a comma, its letter.
// The field's value, or what it points to, is the default. The tag help describes the flag, with its value's name between
// < and >. A list has a value for each time the flag is given; with the tag split, also several between commas. A number
// or a duration is at least what the tag least says, or 0; a duration with the tag negative is any. Structs in the struct
// count as part of it.
func Add(s *pflag.FlagSet, to any) { add(s, reflect.ValueOf(to).Elem()) }

func add(s *pflag.FlagSet, of reflect.Value) {
	kinds := map[reflect.Kind]any{
		reflect.Bool: s.BoolVarP, reflect.Int: s.IntVarP, reflect.Float64: s.Float64VarP, reflect.Int64: s.Int64VarP,
		reflect.String: s.StringVarP, reflect.Slice: s.StringArrayVarP,
	}
	for f, v := range of.Fields() {
		name, letter, _ := strings.Cut(f.Tag.Get("flag"), ",")
		if name == "" {
			if v.Kind() == reflect.Struct {
				add(s, v)
			}
			continue
		}
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		define := reflect.ValueOf(kinds[v.Kind()])
		if v.Type() == reflect.TypeFor[time.Duration]() {
			define = reflect.ValueOf(func(p *time.Duration, name, letter string, usual time.Duration, help string) {
				DurationVarP(s, p, name, letter, usual, help)
			})
		}
		if _, split := f.Tag.Lookup("split"); split {
			define = reflect.ValueOf(s.StringSliceVarP)
		}
		if _, negative := f.Tag.Lookup("negative"); negative {
			define = reflect.ValueOf(s.DurationVarP)
		}
		p := v.Addr().Convert(define.Type().In(0))
		help := strings.NewReplacer("<", "`", ">", "`").Replace(f.Tag.Get("help"))
		define.Call([]reflect.Value{p, reflect.ValueOf(name), reflect.ValueOf(letter), p.Elem(), reflect.ValueOf(help)})
		if _, negative := f.Tag.Lookup("negative"); !negative && (v.CanInt() || v.CanFloat()) {
			flag := s.Lookup(name)
			flag.Value = &number{flag.Value, v, cmp.Or(f.Tag.Get("least"), "0")}
		}
	}
}

type number struct {
	pflag.Value
	to    reflect.Value
	least string
}

func (n *number) Set(text string) error {
	if err := n.Value.Set(text); err != nil {
		return err
	}
	d, _ := api.ParseDuration(n.least)
	least, _ := strconv.ParseFloat(n.least, 64) // one of both parses it
	if v := n.to.Convert(reflect.TypeFor[float64]()).Float(); !(v >= least+float64(d)) {
		return fmt.Errorf("want %s or more", n.least)
	}
	return nil
}
