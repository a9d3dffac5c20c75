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

// resolveModel makes a file's path absolute. Names of models, of Rouse or of the
// runtime, and references that are fetched stay as they are. Runtimes that load
// files have no names with a slash or a dot; the others have (org/name), and a
// path shows itself there by how it begins or ends.
func resolveModel(kind, ref, dir string) string {
	if path, isFile := strings.CutPrefix(ref, "file://"); isFile {
		path = fromFolder(path, dir)
		if strings.ContainsRune(path, '#') { // with a checksum, which the fetch looks at
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

// fromFolder makes a path absolute that counts from dir; an empty one stays empty.
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

// fromHub is the reference that hf.co/ORG/NAME[:QUANT] stands for, as other programs write it: the GGUF model of that
// quantization. Any other reference stays as it is.
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

// IsReference says whether a text says where a model is, a path or a URL, and is not the name of one, such as org/name or namespace/name.
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

// ForModel declares a function that serves the model at ref, a path, a URL to
// fetch it from or the name of a model that ships with Rouse, under a name made from it.
// "NAME=REF" gives it that name instead; see [Named].
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

// CutName splits "NAME=REF". Without a name all of it is the reference, which may have a "=" of its own behind its first "/", "?" or "#".
func CutName(text string) (name, ref string) {
	name, ref, found := strings.Cut(text, "=")
	if !found || name == "" || ref == "" || strings.ContainsAny(name, "/?#") {
		return "", text
	}
	return name, ref
}

// Named gives a function the name of a model: one that no function can have, such as qwen2.5:0.5b, is a name of its model beside the
// function's own, qwen2-5-0-5b.
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

// forModel declares a function of that name.
func forModel(ref, name, origin string) api.Function {
	kind := api.RuntimeEngine
	if strings.HasPrefix(ref, "ollama://") {
		kind = api.RuntimeOllama
	}
	return api.Function{
		Name:        api.NewFunctionName("", name),
		Runtime:     api.Runtime{Kind: kind, Model: resolveModel(kind, ref, ".")},
		SleepAfter:  api.DefaultSleepAfter,
		UnloadAfter: api.DefaultUnloadAfter,
		Origin:      origin,
	}.WithDefaults()
}

// NameOf makes a function's name of a model's, as far as one can be made: Qwen2.5 is qwen2-5, 7b is m-7b, ünï is uni. Empty: the model's
// has no Latin letter and no digit.
func NameOf(model string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case unicode.Is(unicode.Mn, r): // what stands on a letter
			return -1
		}
		return '-'
	}, norm.NFKD.String(model)), "-")
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "m-" + name
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}
