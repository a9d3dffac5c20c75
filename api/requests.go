package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Requests are amounts by Kubernetes' name of the resource, CPU in thousandths and memory in bytes: a pod's resource requests, or a node's capacity. nil is empty. Methods do not
// modify it.
type Requests map[string]int64

// Plus returns the sum of r and s.
func (r Requests) Plus(s Requests) Requests { return r.plus(s, 1) }

// Minus returns r less s; amounts may be negative.
func (r Requests) Minus(s Requests) Requests { return r.plus(s, -1) }

func (r Requests) plus(s Requests, times int64) Requests {
	sum := Requests{}
	maps.Copy(sum, r)
	for name, n := range s {
		sum[name] += n * times
	}
	return sum
}

// Lack returns how much of need is missing in r; nil: nothing. Amounts of 0 in need are ignored.
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

// String formats the amounts by name: "100m cpu, 1GiB memory".
func (r Requests) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		n := r[name]
		switch {
		case n == 0:
		case name == "cpu" && n%1000 == 0:
			parts = append(parts, fmt.Sprintf("%d cpu", n/1000))
		case name == "cpu":
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
