package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RequestCPU is the CPU in [Requests], in thousandths; RequestPods counts pods. All others are as Kubernetes calls them, memory in bytes.
const (
	RequestCPU  = "cpu"
	RequestPods = "pods"
)

// Requests is what is kept of a node for a pod, whether it uses it or not, by resource; or what a node has. nil is nothing.
// A value: its methods change nothing.
type Requests map[string]int64

// Plus is r and s together.
func (r Requests) Plus(s Requests) Requests {
	sum := maps.Clone(r)
	if sum == nil {
		sum = make(Requests, len(s))
	}
	for name, n := range s {
		sum[name] += n
	}
	return sum
}

// Minus is r without s; below zero where s has more.
func (r Requests) Minus(s Requests) Requests {
	rest := maps.Clone(r)
	if rest == nil {
		rest = make(Requests, len(s))
	}
	for name, n := range s {
		rest[name] -= n
	}
	return rest
}

// Lack is what r lacks of need: nothing, nil, where all of it is there. What need has none of does not matter.
func (r Requests) Lack(need Requests) Requests {
	var lack Requests
	for name, n := range need {
		if n > 0 && r[name] < n {
			if lack == nil {
				lack = make(Requests)
			}
			lack[name] = n - max(0, r[name])
		}
	}
	return lack
}

// Meets says whether r has something of what lack has.
func (r Requests) Meets(lack Requests) bool {
	for name, n := range lack {
		if n > 0 && r[name] > 0 {
			return true
		}
	}
	return false
}

// String prints amounts for people, by name: "100m cpu, 1GiB memory".
func (r Requests) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		n := r[name]
		switch {
		case n == 0:
		case name == RequestCPU && n%1000 == 0:
			parts = append(parts, fmt.Sprintf("%d cpu", n/1000))
		case name == RequestCPU:
			parts = append(parts, fmt.Sprintf("%dm cpu", n))
		case strings.HasSuffix(name, "memory") || strings.HasSuffix(name, "storage"):
			parts = append(parts, Bytes(n).String()+" "+name)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
