package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/internal/suggest"
)

// fields are the fields of the objects that a Service is made of down to its containers, as Knative
// has them: a misspelt one would be left out without a word. A value that is nil is not looked into.
type fields map[string]fields

// leaves are fields that are not looked into.
func leaves(names string) fields {
	f := fields{}
	for name := range strings.FieldsSeq(names) {
		f[name] = nil
	}
	return f
}

// with adds fields that are looked into.
func (f fields) with(name string, of fields) fields {
	f[name] = of
	return f
}

var (
	metadataFields = leaves("name generateName namespace labels annotations finalizers ownerReferences uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds selfLink managedFields")
	// envFields and those below are of a list's entries.
	envFields       = leaves("name value valueFrom")
	portFields      = leaves("name containerPort protocol hostPort hostIP")
	containerFields = leaves("name image args command workingDir envFrom volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle securityContext imagePullPolicy terminationMessagePath terminationMessagePolicy stdin stdinOnce tty resizePolicy restartPolicy").
			with("env", envFields).with("ports", portFields).with("resources", leaves("requests limits claims"))
	podFields = leaves("containerConcurrency timeoutSeconds responseStartTimeoutSeconds idleTimeoutSeconds serviceAccountName automountServiceAccountToken volumes imagePullSecrets enableServiceLinks "+
		"affinity tolerations nodeSelector nodeName runtimeClassName schedulerName priorityClassName priority topologySpreadConstraints hostAliases dnsPolicy dnsConfig hostNetwork hostPID hostIPC "+
		"shareProcessNamespace securityContext restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds hostname subdomain readinessGates preemptionPolicy overhead setHostnameAsFQDN os hostUsers schedulingGates resourceClaims").
		with("containers", containerFields).with("initContainers", containerFields)
	serviceFields = leaves("apiVersion kind status").with("metadata", metadataFields).with("spec", fields{
		"template": fields{"metadata": metadataFields, "spec": podFields},
		"traffic":  leaves("tag revisionName configurationName latestRevision percent url"),
	})
)

// checkFields reports the first field of n that is not known.
func checkFields(n *yaml.Node, known fields, path string, src source) error {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if err := checkFields(item, known, path, src); err != nil {
				return err
			}
		}
	case yaml.AliasNode:
		return checkFields(n.Alias, known, path, src)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Tag == "!!merge" {
				continue
			}
			below, found := known[key.Value]
			if !found {
				return src.errorf(key, "unknown field %s%.100s: did you mean %s?", path, key.Value, nearestOf(key.Value, known))
			}
			if below == nil {
				continue
			}
			if err := checkFields(n.Content[i+1], below, path+key.Value+".", src); err != nil {
				return err
			}
		}
	}
	return nil
}

// nearestOf is the known name that is most like another.
func nearestOf[V any](name string, known map[string]V) string {
	names := make([]string, 0, len(known))
	for n := range known {
		names = append(names, n)
	}
	slices.Sort(names)
	distance := func(n string) int {
		return suggest.Distance(strings.ToLower(name), strings.ToLower(n), len(name)+len(n))
	}
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
}

// scalingPrefix is of the keys that Knative's autoscalers read.
const scalingPrefix = "autoscaling.knative.dev/"

// scalingKeys are Knative's own, in both spellings. One that is not here is not an error of the
// declaration to Knative, but does nothing.
var scalingKeys = leaves("class metric target window min-scale minScale max-scale maxScale initial-scale initialScale activation-scale activationScale " +
	"scale-down-delay scaleDownDelay scale-to-zero-pod-retention-period scaleToZeroPodRetentionPeriod metric-aggregation-algorithm metricAggregationAlgorithm " +
	"target-utilization-percentage targetUtilizationPercentage target-burst-capacity targetBurstCapacity " +
	"panic-window-percentage panicWindowPercentage panic-threshold-percentage panicThresholdPercentage")

// checkScaling reports a key of Knative's autoscalers that none of them has.
func checkScaling(key string) error {
	name, scaling := strings.CutPrefix(key, scalingPrefix)
	if !scaling {
		return nil
	}
	if _, known := scalingKeys[name]; known {
		return nil
	}
	return fmt.Errorf("unknown annotation %.100s: did you mean %s?", key, scalingPrefix+nearestOf(name, scalingKeys))
}

// plainResources are what a container asks for under a name without a domain.
var plainResources = leaves("cpu memory ephemeral-storage")

// checkResource reports a resource that Kubernetes refuses as unknown; those with a domain are others' to name.
func checkResource(name string) error {
	if _, known := plainResources[name]; known || strings.Contains(name, "/") || strings.HasPrefix(name, "hugepages-") {
		return nil
	}
	return fmt.Errorf("unknown resource %.100s: did you mean %s?", name, nearestOf(name, plainResources))
}
