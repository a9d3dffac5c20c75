package fetch

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// glob's star matches slashes too, and dir/ all in that folder. The result matches whole names, or their last part.
func glob(pattern string) *regexp.Regexp {
	if strings.HasSuffix(pattern, "/") {
		pattern += "*"
	}
	var re strings.Builder
	re.WriteString(`(?s)^(?:.*/)?`)
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			re.WriteString(`.*`)
		case '?':
			re.WriteString(`.`)
		case '[':
			end := strings.IndexByte(pattern[i+1:], ']')
			if end <= 0 {
				re.WriteString(`\[`)
				continue
			}
			re.WriteString(class(pattern[i+1 : i+1+end]))
			i += end + 1
		default:
			re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	re.WriteString(`$`)
	compiled, err := regexp.Compile(re.String())
	if err != nil { // such as [z-a]: the pattern matches itself
		return regexp.MustCompile(`^` + regexp.QuoteMeta(pattern) + `$`)
	}
	return compiled
}

func class(inner string) string {
	negate := ""
	if strings.HasPrefix(inner, "!") && len(inner) > 1 {
		negate, inner = "^", inner[1:]
	}
	inner = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`).Replace(inner)
	return "[" + negate + inner + "]"
}

func filter[T any](r Ref, all []T, name func(T) string) ([]T, error) {
	if r.all() {
		return all, nil
	}
	included, excluded := matching(r.include, name), matching(r.exclude, name)
	var kept []T
	for _, f := range all {
		if (len(r.include) == 0 || included(f)) && !excluded(f) {
			kept = append(kept, f)
		}
	}
	if len(kept) == 0 {
		return nil, permanentf("include and exclude leave none of the %d files, such as %s", len(all), examples(all, name))
	}
	return kept, nil
}

func matching[T any](patterns []string, name func(T) string) func(T) bool {
	var res []*regexp.Regexp
	for _, p := range patterns {
		res = append(res, glob(p))
	}
	return func(f T) bool {
		return slices.ContainsFunc(res, func(re *regexp.Regexp) bool { return re.MatchString(name(f)) })
	}
}

func examples[T any](all []T, name func(T) string) string {
	var some []string
	for _, f := range all[:min(len(all), 5)] {
		some = append(some, name(f))
	}
	return strings.Join(some, ", ")
}

// copies hold the weights again, for programs that do not read safetensors.
var copies = []string{
	"pytorch_model*.bin", "pytorch_model*.bin.index.json", "*.h5", "*.msgpack", "*.ot", "*.ckpt", "*.pth",
	"*.onnx", "*.onnx_data", "*.mlmodel", "onnx/", "openvino/", "coreml/", "original/",
}

func (r Ref) all() bool { return len(r.include)+len(r.exclude) == 0 }

// withoutCopies leaves a model without safetensors, or a reference with patterns, alone.
func withoutCopies(r Ref, all []file, name func(file) string) []file {
	if !r.all() {
		return all
	}
	safetensors := func(f file) bool {
		return path.Ext(name(f)) == ".safetensors" && !strings.Contains(name(f), "/")
	}
	if !slices.ContainsFunc(all, safetensors) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), matching(copies, name))
}
