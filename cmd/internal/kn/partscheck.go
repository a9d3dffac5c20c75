package kn

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkParts says which Secret, ConfigMap, claim or account of the container is missing: its pod would wait for it silently. Secrets
// are looked up, and not read.
func (c *creator) checkParts(ctx context.Context, n *creation) error {
	var all []source
	all = append(all, n.envFrom...)
	for _, v := range n.envValueFrom {
		all = append(all, v.source)
	}
	for _, v := range n.volumes {
		all = append(all, v.source)
	}
	if n.pullSecret != "" {
		all = append(all, source{ofSecret, n.pullSecret})
	}
	if n.serviceAccount != "" {
		all = append(all, source{"serviceAccount", n.serviceAccount})
	}
	seen := map[source]bool{}
	for _, s := range all {
		if seen[s] || s.kind == ofEmptyDir {
			continue
		}
		seen[s] = true
		resource := map[string]string{ofSecret: "secrets", ofConfigMap: "configmaps", ofClaim: "persistentvolumeclaims", "serviceAccount": "serviceaccounts"}[s.kind]
		err := c.kube.CoreV1().RESTClient().Get().Namespace(n.namespace).Resource(resource).Name(s.name).
			SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx).Into(&metav1.PartialObjectMetadata{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no %s %s/%s, which the container is given: its pods would wait for it; make it first, or say --no-check", s.kind, n.namespace, s.name)
		case err != nil:
			c.note("whether there is the %s %s/%s was not seen: %v", s.kind, n.namespace, s.name, err)
		}
	}
	return nil
}
