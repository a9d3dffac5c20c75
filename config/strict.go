package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/internal/names"
)

// fields are the known fields of a Service, as Knative defines them. A nil value is not descended into.
type fields map[string]fields

func leaves(names string) fields {
	f := fields{}
	for name := range strings.FieldsSeq(names) {
		f[name] = nil
	}
	return f
}

func (f fields) with(name string, of fields) fields {
	f[name] = of
	return f
}

var (
	metadataFields  = leaves("name generateName namespace labels annotations finalizers ownerReferences uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds selfLink managedFields")
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

// checkFields returns an error for the first unknown field of n.
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

// A name that contains what follows a slash in name comes first, then the smallest edit distance.
func nearestOf[V any](name string, known map[string]V) string {
	_, last, _ := strings.Cut(name, "/")
	distance := func(n string) int {
		d := names.Distance(strings.ToLower(name), strings.ToLower(n), len(name)+len(n))
		if last != "" && strings.Contains(n, last) {
			d -= len(n)
		}
		return d
	}
	return slices.MinFunc(slices.Sorted(maps.Keys(known)), func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
}

const scalingPrefix = "autoscaling.knative.dev/"

// In both spellings. Knative ignores others without an error.
var scalingKeys = leaves("class metric target window min-scale minScale max-scale maxScale initial-scale initialScale activation-scale activationScale " +
	"scale-down-delay scaleDownDelay scale-to-zero-pod-retention-period scaleToZeroPodRetentionPeriod metric-aggregation-algorithm metricAggregationAlgorithm " +
	"target-utilization-percentage targetUtilizationPercentage target-burst-capacity targetBurstCapacity " +
	"panic-window-percentage panicWindowPercentage panic-threshold-percentage panicThresholdPercentage")

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

var plainResources = leaves("cpu memory ephemeral-storage")

// Names with a domain are accepted.
func checkResource(name string) error {
	if _, known := plainResources[name]; known || strings.Contains(name, "/") || strings.HasPrefix(name, "hugepages-") {
		return nil
	}
	return fmt.Errorf("unknown resource %.100s: did you mean %s?", name, nearestOf(name, plainResources))
}
