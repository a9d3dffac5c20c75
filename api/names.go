package api

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DefaultNamespace is the namespace of a function whose manifest names none.
const DefaultNamespace = "default"

// DefaultModel is a name that every model has besides its own: clients of mlflow-extensions, whose vLLM serves it,
// ask for it.
const DefaultModel = "default"

// FunctionName names a function in the form "namespace/name".
type FunctionName string

// NewFunctionName joins a namespace (empty: [DefaultNamespace]) and a name.
func NewFunctionName(namespace, name string) FunctionName {
	return FunctionName(cmp.Or(namespace, DefaultNamespace) + "/" + name)
}

// Namespace returns the part before the slash; [DefaultNamespace] if there is no slash.
func (f FunctionName) Namespace() string {
	ns, _, found := strings.Cut(string(f), "/")
	if !found {
		return DefaultNamespace
	}
	return ns
}

// Name returns the part after the slash; all of f if there is no slash.
func (f FunctionName) Name() string {
	return string(f[strings.Index(string(f), "/")+1:])
}

// Short returns the name for people and commands: without the default namespace.
func (f FunctionName) Short() string {
	if f.Namespace() == DefaultNamespace {
		return f.Name()
	}
	return string(f)
}

// Check returns an error that says why the name or the namespace is not valid, or nil. The rule for the namespace is Kubernetes'
// (RFC 1123 label).
func (f FunctionName) Check() error {
	ns := f.Namespace()
	if ns == "" || len(ns) > 63 || strings.Trim(ns, letters+digits+"-") != "" || strings.Trim(ns, "-") != ns {
		return fmt.Errorf("namespace %q: want 1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit", ns)
	}
	return CheckName(f.Name())
}

const letters, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"

// CheckName returns an error that says why name is not a valid function name, or nil. The rule is Kubernetes' for the
// name of a Service (RFC 1035 label).
func CheckName(name string) error {
	if len(name) > 63 || strings.IndexAny(name, letters) != 0 || strings.Trim(name, letters+digits+"-") != "" || strings.HasSuffix(name, "-") {
		return fmt.Errorf("name %q: want 1 to 63 of a-z, 0-9 and '-', starting with a letter and ending with a letter or digit", name)
	}
	return nil
}

// maxAdapterName bounds an adapter's name, which becomes a metric label.
const maxAdapterName = 253

// CheckAdapterName returns an error that says why name is not a valid LoRA adapter name, or nil.
func CheckAdapterName(name ModelName) error {
	switch {
	case name == "" || len(name) > maxAdapterName:
		return fmt.Errorf("the adapter's name has %d characters: want 1 to %d", len(name), maxAdapterName)
	case strings.Trim(string(name), letters+strings.ToUpper(letters)+digits+"-_.:/@") != "":
		return fmt.Errorf("the adapter's name %q: want letters, digits and - _ . : / @ only", name)
	case name == "info":
		return errors.New("an adapter can't be named info: GET /adapters/info lists them; choose another name")
	}
	return nil
}

// ModelName is the value of a request's field "model".
type ModelName string

// InstanceID identifies an instance within a cluster: "NAME-0001" or a pod's name.
type InstanceID string

// DeviceID identifies a device of a node: a GPU's UUID, or [HostMemory].
type DeviceID string

// HostMemory stands for the host's own memory.
const HostMemory DeviceID = "host"

// Tokens counts tokens.
type Tokens int64

// Bytes counts bytes.
type Bytes int64

// Binary units.
const (
	KiB Bytes = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// MaxDeviceMemory is more than any GPU has; a larger reported value is invalid.
const MaxDeviceMemory = 16 * TiB

// String formats b in the largest binary unit that leaves at least 1, with at most one decimal.
func (b Bytes) String() string {
	for _, u := range []struct {
		unit Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.unit || b <= -u.unit {
			s := strconv.FormatFloat(float64(b)/float64(u.unit), 'f', 1, 64)
			return strings.TrimSuffix(s, ".0") + " " + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// quantitySuffixes are the Kubernetes quantity suffixes accepted for memory.
var quantitySuffixes = []struct {
	suffix string
	factor float64
}{
	{"Ki", float64(KiB)}, {"Mi", float64(MiB)}, {"Gi", float64(GiB)}, {"Ti", float64(TiB)},
	{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1},
}

// ParseBytes parses a Kubernetes memory quantity such as "512Mi", "2Gi", "1.5G" or "1048576".
func ParseBytes(s string) (Bytes, error) {
	for _, q := range quantitySuffixes {
		digits, found := strings.CutSuffix(strings.TrimSpace(s), q.suffix)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil || v < 0 || math.IsNaN(v) || v*q.factor > math.MaxInt64/2 {
			break
		}
		return Bytes(v * q.factor), nil
	}
	return 0, fmt.Errorf("memory %q: want a quantity such as 512Mi or 2Gi", s)
}
