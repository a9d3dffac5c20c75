package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

// Names and references to fetch stay as they are. Runtimes that load files have no names with a slash or a dot; for
// others a path's beginning or end tells.
func resolveModel(kind, ref, dir string) string {
	if path, isFile := strings.CutPrefix(ref, "file://"); isFile {
		path = fromFolder(path, dir)
		if strings.ContainsRune(path, '#') { // a checksum
			return "file://" + path
		}
		return path
	}
	if strings.Contains(ref, "://") {
		return ref
	}
	path := strings.HasSuffix(ref, ".gguf") || strings.HasSuffix(ref, "Modelfile") || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../")
	if !path && (kind == "" || kind == api.RuntimeEngine || kind == api.RuntimeLlamaCpp) {
		path = strings.ContainsAny(ref, "/.")
	}
	if !path {
		return ref
	}
	return fromFolder(ref, dir)
}

// An empty path stays empty.
func fromFolder(path, dir string) string {
	if path == "" {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path
}

// hf.co/ORG/NAME[:QUANT] is a notation of other programs.
func fromHub(ref string) string {
	rest, is := strings.CutPrefix(strings.TrimPrefix(ref, "https://"), "hf.co/")
	if !is {
		rest, is = strings.CutPrefix(ref, "huggingface.co/")
	}
	repository, quant, _ := strings.Cut(rest, ":")
	if !is || strings.Count(repository, "/") != 1 || strings.ContainsAny(rest, "?#*,&[") {
		return ref
	}
	return fmt.Sprintf("hf://%s?quant=%s", repository, cmp.Or(quant, "default"))
}

// IsReference reports whether a text is a model's path or URL rather than a name.
func IsReference(text string) bool {
	if name, _ := CutName(text); name != "" {
		return true
	}
	for _, begin := range []string{"/", "./", "../", "hf.co/", "huggingface.co/"} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return strings.Contains(text, "://") || strings.HasSuffix(text, ".gguf")
}

// ForModel declares a function for a path, a URL to fetch or a model that ships with Rouse, and derives its name.
// "NAME=REF" sets it.
func ForModel(ref, origin string) (api.Function, error) {
	if name, rest := CutName(ref); name != "" {
		return Named(forModel(fromHub(rest), "m", origin), name)
	}
	ref = fromHub(ref)
	plain, _, _ := strings.Cut(ref, "#") // a checksum
	if strings.Contains(ref, "://") {
		plain, _, _ = strings.Cut(plain, "?") // which files
	}
	base := ggufname.Base(plain)
	name := NameOf(base)
	if err := api.CheckName(name); err != nil {
		return api.Function{}, fmt.Errorf("no function's name can be made from %s: name it with NAME=%s", ref, ref)
	}
	f := forModel(ref, name, origin)
	if base != name {
		f.Aliases = slices.DeleteFunc([]api.ModelName{api.ModelName(base)}, func(m api.ModelName) bool { return m == "" })
	}
	return f, nil
}

// CutName splits "NAME=REF". A reference may contain "=" after its first "/", "?" or "#".
func CutName(text string) (name, ref string) {
	name, ref, found := strings.Cut(text, "=")
	if !found || name == "" || ref == "" || strings.ContainsAny(name, "/?#") {
		return "", text
	}
	return name, ref
}

// Named names a function. A name that no function can have, such as qwen2.5:0.5b, becomes the model's alias, and the
// function is qwen2-5-0-5b.
func Named(f api.Function, name string) (api.Function, error) {
	own := name
	if api.CheckName(name) != nil {
		own = NameOf(name)
	}
	if err := api.CheckName(own); err != nil || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return f, fmt.Errorf("no function's name can be made of %q: want letters, digits, '-', '.', '_' and ':'", name)
	}
	f.Name, f.Model, f.Aliases = api.NewFunctionName("", own), "", nil
	if own != name {
		f.Aliases = []api.ModelName{api.ModelName(name)}
	}
	return f.WithDefaults(), nil
}

func forModel(ref, name, origin string) api.Function {
	kind := api.RuntimeEngine
	if strings.HasPrefix(ref, "ollama://") {
		kind = api.RuntimeOllama
	}
	return api.Function{
		Name:        api.NewFunctionName("", name),
		Runtime:     api.Runtime{Kind: kind, Model: resolveModel(kind, ref, ".")},
		SleepAfter:  DefaultSleepAfter,
		UnloadAfter: DefaultUnloadAfter,
		Origin:      origin,
	}.WithDefaults()
}

// NameOf derives a function's name from a model's: Qwen2.5 is qwen2-5, 7b is m-7b, ünï is uni. It may be empty.
func NameOf(model string) string {
	last := '-'
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		case unicode.Is(unicode.Mn, r), last == '-':
			return -1
		default:
			r = '-'
		}
		last = r
		return r
	}, norm.NFKD.String(model)), "-")
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "m-" + name
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}
