package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathClusters is the path of the clusters of a front door, GET: []Cluster. In a cluster it is an activator's too.
const PathClusters = "/rouse/v1/clusters"

// ClusterState says whether a front door has a cluster.
type ClusterState string

// States of clusters.
const (
	ClusterJoined  ClusterState = "joined"
	ClusterLeaving ClusterState = "leaving" // its agents finish what runs, and take nothing new
	ClusterAway    ClusterState = "away"    // none of its agents is there
)

// Cluster is a cluster that a front door declares.
type Cluster struct {
	Name  string       `json:"name"`
	State ClusterState `json:"state"`
	// Front says that it is another front door.
	Front bool `json:"front,omitempty"`
	// Since is when it came to that state; zero: it has not been seen.
	Since time.Time `json:"since,omitzero"`
	// Agents are those that are there.
	Agents []ClusterAgent `json:"agents,omitempty"`
	// Functions are those that it serves, Awake how many of these have an awake instance.
	Functions []string `json:"functions,omitempty"`
	Awake     int      `json:"awake,omitempty"`
	// Running are the requests there, of all who send some.
	Running int `json:"running"`
	// Refused says what of the functions that it offers is not taken, and why: FUNCTION: REASON.
	Refused []string `json:"refused,omitempty"`
	// Rejected says why an agent of it was last shut out or sent away, while none of it has come since; RejectedAt is when.
	Rejected   string    `json:"rejected,omitempty"`
	RejectedAt time.Time `json:"rejectedAt,omitzero"`
}

// PathFar is the path of what a front door knows of functions of clusters, GET: []Far; ?function=NAMESPACE/NAME: that
// one in full. In a cluster it is an activator's.
const PathFar = "/rouse/v1/clusters/functions"

// Far is a function that clusters have, or that is to be created in one, as a front door knows it.
type Far struct {
	Front    string   `json:"front"`
	Function Function `json:"function"`
	// Clusters are those that have it.
	Clusters []string `json:"clusters,omitempty"`
	// Why says what waits and which clusters were chosen for it; Wakes are the last wakes that this front door held requests for. Both in full only.
	Why   []api.Decision  `json:"why,omitempty"`
	Wakes []api.WakeTrace `json:"wakes,omitempty"`
}

// MergeFar joins what several front doors say: instances, which each of them names the same, count once. The list is in the order of names.
func MergeFar(lists ...[]Far) []Far {
	at := map[api.FunctionName]int{}
	var all []Far
	for _, far := range slices.Concat(lists...) {
		name := far.Function.Function.Name
		k, known := at[name]
		if !known {
			at[name] = len(all)
			all = append(all, far)
			continue
		}
		old := &all[k]
		old.Clusters = union(old.Clusters, far.Clusters)
		old.Why, old.Wakes = append(old.Why, far.Why...), append(old.Wakes, far.Wakes...)
		f := &old.Function
		f.Waiting += far.Function.Waiting
		f.Running, f.Desired = max(f.Running, far.Function.Running), max(f.Desired, far.Function.Desired)
		if far.Function.LastRequest.After(f.LastRequest) {
			f.LastRequest = far.Function.LastRequest
		}
		for _, i := range far.Function.Instances {
			if !slices.ContainsFunc(f.Instances, func(o api.InstanceStatus) bool { return o.Instance == i.Instance }) {
				f.Instances = append(f.Instances, i)
			}
		}
	}
	slices.SortFunc(all, func(a, b Far) int { return cmp.Compare(a.Function.Function.Name, b.Function.Function.Name) })
	return all
}

// ClusterAgent is one agent of a cluster.
type ClusterAgent struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Way is the time of a message there and back; 0: none was measured yet.
	Way   time.Duration `json:"way,omitempty"`
	Since time.Time     `json:"since"`
	Links int           `json:"links"`
}

// MergeClusters joins what several front doors say of the clusters that they declare: each has other agents. The list is in
// the order of names.
func MergeClusters(lists ...[]Cluster) []Cluster {
	merged := map[string]Cluster{}
	for _, c := range slices.Concat(lists...) {
		old, known := merged[c.Name]
		if known {
			c = old.with(c)
		}
		merged[c.Name] = c
	}
	all := make([]Cluster, 0, len(merged))
	for _, c := range merged {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// with is c with what another front door says of it.
func (c Cluster) with(o Cluster) Cluster {
	order := []ClusterState{ClusterJoined, ClusterLeaving, ClusterAway}
	switch by := cmp.Compare(slices.Index(order, c.State), slices.Index(order, o.State)); {
	case by > 0:
		c.State, c.Since = o.State, o.Since
	case by == 0 && (c.State == ClusterAway && o.Since.After(c.Since) || c.State != ClusterAway && o.Since.Before(c.Since)):
		c.Since = o.Since
	}
	c.Agents = append(slices.Clone(c.Agents), o.Agents...)
	c.Functions, c.Refused = union(c.Functions, o.Functions), union(c.Refused, o.Refused)
	c.Awake = max(c.Awake, o.Awake)
	if o.RejectedAt.After(c.RejectedAt) {
		c.Rejected, c.RejectedAt = o.Rejected, o.RejectedAt
	}
	c.Running += o.Running
	return c
}

// union is what is in either, in order.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
