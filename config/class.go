package config

import (
	"cmp"
	"time"
)

// Rouse's annotation keys, in spec.template.metadata.annotations.
const (
	AnnotationRuntime      = "rouse.dev/runtime"
	AnnotationModel        = "rouse.dev/model"
	AnnotationServedName   = "rouse.dev/served-model-name"
	AnnotationMemory       = "rouse.dev/memory"
	AnnotationDeviceMemory = "rouse.dev/device-memory"
	AnnotationSleepAfter   = "rouse.dev/sleep-after"
	AnnotationUnloadAfter  = "rouse.dev/unload-after"
	AnnotationEndpoint     = "rouse.dev/runtime-endpoint"
	AnnotationAdapters     = "rouse.dev/adapters"
	AnnotationHoldTimeout  = "rouse.dev/hold-timeout"
	AnnotationStartTimeout = "rouse.dev/start-timeout"
	AnnotationPriority     = "rouse.dev/priority"

	AnnotationDualPods      = "rouse.dev/dual-pods"
	AnnotationProviderPatch = "rouse.dev/provider-patch"

	AnnotationMediaHosts = "rouse.dev/media-hosts"

	AnnotationRequestTimeout   = "rouse.dev/request-timeout"
	AnnotationFirstByteTimeout = "rouse.dev/first-byte-timeout"
	AnnotationIdleTimeout      = "rouse.dev/idle-timeout"

	AnnotationClusters    = "rouse.dev/clusters"
	AnnotationRemoveAfter = "rouse.dev/remove-after"
	AnnotationRegions     = "rouse.dev/regions"

	AnnotationInject = "rouse.dev/inject"
	// On a pod: the function's port, or why the pod did not receive it.
	AnnotationInjected    = "rouse.dev/injected"
	AnnotationNotInjected = "rouse.dev/not-injected"
)

// Knative's annotation keys that Rouse reads.
const (
	AnnotationClass    = "autoscaling.knative.dev/class"
	AnnotationMinScale = "autoscaling.knative.dev/min-scale"
	AnnotationMaxScale = "autoscaling.knative.dev/max-scale"
	// Class is the value of AnnotationClass for functions of Rouse.
	Class = "gpu.autoscaling.rouse.dev"
)

const (
	DefaultSleepAfter  = time.Minute
	DefaultUnloadAfter = 15 * time.Minute
)

// IsFunction reports whether a revision is a function. Without a class of its own, its PodAutoscaler's counts.
func IsFunction(revision, podAutoscaler map[string]string) bool {
	return cmp.Or(revision[AnnotationClass], podAutoscaler[AnnotationClass]) == Class
}

// Of the container; an annotation wins.
const (
	EnvRuntime = "ROUSE_RUNTIME"
	EnvModel   = "ROUSE_MODEL"
)
