package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathClusters is GET: []Cluster, of a front door; in a cluster activators serve it too.
const PathClusters = "/rouse/v1/clusters"

// ClusterState is the connection state of a cluster.
type ClusterState string

const (
	ClusterJoined  ClusterState = "joined"
	ClusterLeaving ClusterState = "leaving" // finishes its requests only
	ClusterAway    ClusterState = "away"    // no agent is connected
)

// Cluster is a cluster that a front door declares.
type Cluster struct {
	Name  string       `json:"name"`
	State ClusterState `json:"state"`
	// It is another front door.
	Front bool `json:"front,omitempty"`
	// Zero: it was never seen.
	Since  time.Time      `json:"since,omitzero"`
	Agents []ClusterAgent `json:"agents,omitempty"`
	// Awake counts those with an awake instance.
	Functions []string `json:"functions,omitempty"`
	Awake     int      `json:"awake,omitempty"`
	// From all senders.
	Running int `json:"running"`
	// FUNCTION: REASON.
	Refused []string `json:"refused,omitempty"`
	// Why an agent was last rejected, if none has connected since.
	Rejected   string    `json:"rejected,omitempty"`
	RejectedAt time.Time `json:"rejectedAt,omitzero"`
}

// PathFar is GET: []Far; ?function=NAMESPACE/NAME: that one in full. In a cluster an activator serves it.
const PathFar = "/rouse/v1/clusters/functions"

// Far is a front door's view of a function of clusters.
type Far struct {
	Front    string   `json:"front"`
	Function Function `json:"function"`
	Clusters []string `json:"clusters,omitempty"`
	// Only in full views: what waits, and the wakes of requests held here.
	Why   []api.Decision  `json:"why,omitempty"`
	Wakes []api.WakeTrace `json:"wakes,omitempty"`
}

// MergeFar merges the views of several front doors. An instance has the same ID in all.
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
	// Round trip; 0: not measured.
	Way   time.Duration `json:"way,omitempty"`
	Since time.Time     `json:"since"`
	Links int           `json:"links"`
}

// MergeClusters merges the views of several front doors, each with its own agents.
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

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
