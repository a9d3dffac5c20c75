package chat

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// The library's string methods differ from Python's in their defaults (strip, split, replace), its reverse filter sorts,
// and its lists cannot be asked for their first element from behind ([-1] of a list of one). Templates use all of that, so
// what they use is defined here.

// asList makes a list of any slice, so that negative indices work; other values stay as they are.
func asList(v any) any {
	if _, ok := v.(list); ok {
		return v
	}
	s := reflect.ValueOf(v)
	if !s.IsValid() || s.Kind() != reflect.Slice {
		return v
	}
	out := make(list, s.Len())
	for i := range out {
		out[i] = s.Index(i).Interface()
	}
	return out
}

// listFilters are the library's filters that make lists.
var listFilters = []string{"list", "selectattr", "rejectattr", "select", "reject", "map", "sort", "unique", "slice", "batch", "items", "dictsort", "groupby"}

// pythonFilters is the library's set with the filters above repaired.
func pythonFilters() *exec.FilterSet {
	set := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	own := map[string]exec.FilterFunction{
		"tojson":  toJSON,
		"reverse": reverse,
		"trim": func(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
			if in.IsError() {
				return in
			}
			return exec.AsValue(strip(in.String(), args, true, true))
		},
	}
	for _, name := range listFilters {
		inner, ok := builtins.Filters.Get(name)
		if !ok {
			continue
		}
		own[name] = func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
			out := inner(e, in, args)
			if out.IsError() || !out.IsList() {
				return out
			}
			return exec.AsValue(asList(out.Interface()))
		}
	}
	for name, f := range own {
		if err := set.Replace(name, f); err != nil {
			panic(err) // the library has filters of all these names
		}
	}
	return set
}

func reverse(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	if in.IsString() {
		runes := []rune(in.String())
		for i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {
			runes[i], runes[j] = runes[j], runes[i]
		}
		return exec.AsValue(string(runes))
	}
	l, ok := asList(in.Interface()).(list)
	if !ok {
		return exec.AsValue(errors.New("reverse wants a list or a string"))
	}
	out := make(list, len(l))
	for i, e := range l {
		out[len(l)-1-i] = e
	}
	return exec.AsValue(out)
}

// argument is the i-th argument or the one called name; nil where there is none.
func argument(args *exec.VarArgs, i int, name string) *exec.Value {
	if i < len(args.Args) {
		return args.Args[i]
	}
	if v, ok := args.KwArgs[name]; ok {
		return v
	}
	return nil
}

func textArgument(args *exec.VarArgs, i int, name string) (string, error) {
	v := argument(args, i, name)
	if v == nil || !v.IsString() {
		return "", exec.ErrInvalidCall(fmt.Errorf("argument %d (%s) is not a string", i+1, name))
	}
	return v.String(), nil
}

// isSpace is str.isspace of one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func strip(s string, args *exec.VarArgs, left, right bool) string {
	cut := isSpace
	if v := argument(args, 0, "chars"); v != nil && v.IsString() {
		chars := v.String()
		cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// split is str.split and, with last, str.rsplit.
func split(s string, args *exec.VarArgs, last bool) (any, error) {
	most := -1
	if v := argument(args, 1, "maxsplit"); v != nil {
		most = v.Integer()
	}
	var parts []string
	sep := argument(args, 0, "sep")
	switch {
	case sep == nil || sep.IsNil():
		parts = splitSpace(s, most, last)
	case sep.String() == "":
		return nil, errors.New("split: the separator is empty")
	default:
		parts = splitAt(s, sep.String(), most, last)
	}
	return asList(parts), nil
}

func splitAt(s, sep string, most int, last bool) []string {
	if most < 0 {
		return strings.Split(s, sep)
	}
	if !last {
		return strings.SplitN(s, sep, most+1)
	}
	var parts []string
	for len(parts) < most {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append([]string{s[i+len(sep):]}, parts...)
		s = s[:i]
	}
	return append([]string{s}, parts...)
}

// splitSpace splits at runs of white space. With a limit, what is left at the far end keeps its white space.
func splitSpace(s string, most int, last bool) []string {
	if most < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	parts := []string{}
	for {
		var word, rest string
		if last {
			s = strings.TrimRightFunc(s, isSpace)
			at := strings.LastIndexFunc(s, isSpace)
			_, n := utf8.DecodeRuneInString(s[max(at, 0):])
			word, rest = s, ""
			if at >= 0 {
				word, rest = s[at+n:], s[:at]
			}
		} else {
			s = strings.TrimLeftFunc(s, isSpace)
			word, rest = s, ""
			if at := strings.IndexFunc(s, isSpace); at >= 0 {
				word, rest = s[:at], s[at:]
			}
		}
		if s == "" {
			return parts
		}
		if len(parts) == most {
			word, rest = s, ""
		}
		if last {
			parts = append([]string{word}, parts...)
		} else {
			parts = append(parts, word)
		}
		s = rest
	}
}

func replaceText(s string, args *exec.VarArgs) (any, error) {
	from, err := textArgument(args, 0, "old")
	if err != nil {
		return nil, err
	}
	to, err := textArgument(args, 1, "new")
	if err != nil {
		return nil, err
	}
	n := -1
	if v := argument(args, 2, "count"); v != nil {
		n = v.Integer()
	}
	return strings.Replace(s, from, to, n), nil
}

// affix is startswith and endswith: one string or a list of them.
func affix(has func(s, affix string) bool) exec.Method[string] {
	return func(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		v := args.First()
		if v.IsString() {
			return has(s, v.String()), nil
		}
		if !v.IsList() {
			return nil, exec.ErrInvalidCall(errors.New("wants a string or a list of strings"))
		}
		for i := range v.Len() {
			if has(s, v.Index(i).String()) {
				return true, nil
			}
		}
		return false, nil
	}
}

// plain is a method without arguments.
func plain[T any](f func(string) T) exec.Method[string] {
	return func(s string, _ *exec.Value, _ *exec.VarArgs) (any, error) { return f(s), nil }
}

// withText is a method of one string.
func withText[T any](f func(s, arg string) T) exec.Method[string] {
	return func(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		arg, err := textArgument(args, 0, "text")
		if err != nil {
			return nil, err
		}
		return f(s, arg), nil
	}
}

// every is a method that asks whether s is not empty and all its characters are of a kind.
func every(is func(rune) bool) exec.Method[string] {
	return plain(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	})
}

// runeIndex turns a byte index into an index of characters.
func runeIndex(s string, i int) int {
	if i < 0 {
		return -1
	}
	return utf8.RuneCountInString(s[:i])
}

func joinText(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	v := args.First()
	if !v.IsList() {
		return nil, exec.ErrInvalidCall(errors.New("join wants a list of strings"))
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = v.Index(i).String()
	}
	return strings.Join(parts, s), nil
}

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(s[n:])
}

// title is str.title: a capital after each character that is no letter.
func title(s string) string {
	letter := false
	return strings.Map(func(r rune) rune {
		first := !letter
		letter = unicode.IsLetter(r)
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

// textMethods are Python's string methods.
var textMethods = exec.NewMethodSet(map[string]exec.Method[string]{
	"strip":      func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return strip(s, a, true, true), nil },
	"lstrip":     func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return strip(s, a, true, false), nil },
	"rstrip":     func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return strip(s, a, false, true), nil },
	"split":      func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return split(s, a, false) },
	"rsplit":     func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return split(s, a, true) },
	"splitlines": plain(func(s string) any { return asList(splitLines(s)) }),
	"replace":    func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return replaceText(s, a) },
	"join":       joinText,
	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"removeprefix": withText(strings.TrimPrefix), "removesuffix": withText(strings.TrimSuffix),
	"find":  withText(func(s, sub string) int { return runeIndex(s, strings.Index(s, sub)) }),
	"rfind": withText(func(s, sub string) int { return runeIndex(s, strings.LastIndex(s, sub)) }),
	"count": withText(strings.Count),
	"upper": plain(strings.ToUpper), "lower": plain(strings.ToLower), "title": plain(title), "capitalize": plain(capitalize),
	"isdigit": every(unicode.IsDigit), "isnumeric": every(unicode.IsNumber), "isalpha": every(unicode.IsLetter), "isspace": every(isSpace),
	"isalnum": every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isupper": plain(func(s string) bool { return s == strings.ToUpper(s) && s != strings.ToLower(s) }),
	"islower": plain(func(s string) bool { return s == strings.ToLower(s) && s != strings.ToUpper(s) }),
})

// splitLines is str.splitlines for the line ends that occur: \n, \r\n and \r.
func splitLines(s string) []string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	if s == "" {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// objectMethods are Python's methods of objects, in insertion order. None of them changes the object.
var objectMethods = exec.NewMethodSet(map[string]exec.Method[map[string]any]{
	"keys": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		return each(self, func(key string, _ *exec.Value) any { return key }), nil
	},
	"values": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		return each(self, func(_ string, v *exec.Value) any { return v }), nil
	},
	"items": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		return each(self, func(key string, v *exec.Value) any { return list{key, v} }), nil
	},
	"get": func(_ map[string]any, self *exec.Value, args *exec.VarArgs) (any, error) {
		if len(args.Args) < 1 || len(args.Args) > 2 {
			return nil, exec.ErrInvalidCall(errors.New("get wants 1 or 2 arguments"))
		}
		if v, ok := self.GetItem(args.Args[0].String()); ok {
			return v.Interface(), nil
		}
		if len(args.Args) == 2 {
			return args.Args[1].Interface(), nil
		}
		return nil, nil
	},
})

func each(object *exec.Value, f func(key string, v *exec.Value) any) list {
	out := list{}
	for _, k := range object.Keys() {
		v, _ := object.GetItem(k.String())
		out = append(out, f(k.String(), v))
	}
	return out
}
