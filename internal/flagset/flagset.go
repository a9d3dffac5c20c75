// Package flagset makes flags of a struct's fields.
package flagset

import (
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// Add adds a flag for each field of the struct with the tag flag, which has the flag's name and, after a comma, its letter. The field's
// value, or what it points to, is the default. The tag help describes the flag, with its value's name between < and >. A list has a
// value for each time the flag is given; with the tag split, also several between commas. Structs in the struct count as part of it.
func Add(s *pflag.FlagSet, to any) { add(s, reflect.ValueOf(to).Elem()) }

func add(s *pflag.FlagSet, of reflect.Value) {
	kinds := map[reflect.Kind]any{
		reflect.Bool: s.BoolVarP, reflect.Int: s.IntVarP, reflect.Float64: s.Float64VarP, reflect.Int64: s.DurationVarP,
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
		if _, split := f.Tag.Lookup("split"); split {
			define = reflect.ValueOf(s.StringSliceVarP)
		}
		p := v.Addr().Convert(define.Type().In(0))
		help := strings.NewReplacer("<", "`", ">", "`").Replace(f.Tag.Get("help"))
		define.Call([]reflect.Value{p, reflect.ValueOf(name), reflect.ValueOf(letter), p.Elem(), reflect.ValueOf(help)})
	}
}
