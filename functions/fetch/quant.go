package fetch

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/ggufname"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// anyQuant means usualQuant, as in Ollama and llama.cpp, or the only model's.
const (
	anyQuant   = "default"
	usualQuant = "Q4_K_M"
)

var (
	quantForm  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	quantLabel = lazyregexp.New(`(?i)(?:^|[-._])((?:UD-|i1-)?(?:I?Q\d|TQ\d|BF16|FP?16|FP?32|MXFP4|NVFP4)(?:_[A-Z0-9]+)*)(?:[-.]|$)`)
)

// ofQuant returns the files of the one GGUF model with that quantization in its file's name, else in its folder's. A variant (UD-Q4_K_M,
// i1-Q4_K_M) counts if there is none without prefix.
func ofQuant(quant string, all []file) ([]file, error) {
	models := ggufname.Models(fileNames(all))
	wanted := quant
	if quant == anyQuant {
		wanted = usualQuant
	}
	re := regexp.MustCompile(`(?i)(?:^|[-._/])(UD-|i1-)?` + regexp.QuoteMeta(wanted) + `(?:[-./]|$)`)
	var exact, variants []string
	for _, m := range models {
		at := re.FindStringSubmatch(ggufname.Base(m))
		if at == nil {
			at = re.FindStringSubmatch(path.Dir(m))
		}
		switch {
		case at == nil:
		case at[1] == "":
			exact = append(exact, m)
		default:
			variants = append(variants, m)
		}
	}
	fits := exact
	if len(fits) == 0 {
		fits = variants
	}
	if len(fits) == 0 && quant == anyQuant && len(models) == 1 {
		fits = models
	}
	switch {
	case len(models) == 0:
		return nil, permanentf("there is no GGUF model among the %d files, such as %s", len(all), examples(all, nameOf))
	case len(fits) == 0:
		return nil, permanentf("there is no GGUF model of the quantization %s: name one of %s", wanted, strings.Join(quants(models), ", "))
	case len(fits) > 1:
		return nil, permanentf("several GGUF models have the quantization %s: name one of the files as hf://ORG/NAME/FILE: %s", wanted, strings.Join(fits, ", "))
	}
	return partsOf(fits[0], all)
}

func partsOf(model string, all []file) ([]file, error) {
	if err := ggufname.Missing(model, fileNames(all)); err != nil {
		return nil, permanentf("%w", err)
	}
	parts := ggufname.Parts(model)
	return slices.DeleteFunc(slices.Clone(all), func(f file) bool { return !slices.Contains(parts, f.name) }), nil
}

// quants returns a model's name if it has no quantization.
func quants(models []string) []string {
	var labels []string
	for _, m := range models {
		label := path.Base(m)
		for _, in := range []string{path.Dir(m), ggufname.Base(m)} { // the last counts
			if found := quantLabel().FindAllStringSubmatch(in, -1); found != nil {
				label = found[len(found)-1][1]
			}
		}
		labels = append(labels, label)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

func nameOf(f file) string { return f.name }

func fileNames(files []file) (names []string) {
	for _, f := range files {
		names = append(names, f.name)
	}
	return names
}
