package kn

import (
	"context"
	"fmt"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type right struct {
	verb, group, resource, subresource string
	// namespace is empty for all or for objects without one; name is empty for every name.
	namespace, name string
}

func (r right) String() string {
	s := r.verb + " " + r.resource
	if r.group != "" {
		s += "." + r.group
	}
	if r.name != "" {
		s += "/" + r.name
	}
	if r.subresource != "" {
		s += " --subresource=" + r.subresource
	}
	if r.namespace != "" {
		return s + " -n " + r.namespace
	}
	if r.verb == "list" && !strings.HasPrefix(r.resource, "cluster") {
		return s + " -A"
	}
	return s
}

type denied struct {
	right
	cause error
}

func (d *denied) Error() string {
	what := d.resource
	if d.subresource != "" {
		what += "/" + d.subresource
	}
	if d.group != "" {
		what += " of " + d.group
	}
	where := "in the whole cluster"
	if d.namespace != "" {
		where = "in the namespace " + d.namespace
	}
	if d.name != "" {
		what += " (" + d.name + ")"
	}
	return fmt.Sprintf("you may not %s %s %s: an administrator can give you the verb %q for it; see whether you have it with\n  kubectl auth can-i %s", d.verb, what, where, d.verb, d.right)
}

func (d *denied) Unwrap() error { return d.cause }

// refusal says what to do about a missing permission; other errors get act and object.
func refusal(err error, verb string, r schema.GroupVersionResource, namespace, name string) error {
	if apierrors.IsForbidden(err) {
		return &denied{right{verb: verb, group: r.Group, resource: r.Resource, namespace: namespace, name: name}, err}
	}
	return fmt.Errorf("%s %s: %w", verb, strings.TrimPrefix(namespace+"/"+name, "/"), err)
}

// missing returns the permissions that the user lacks.
func (c *cluster) missing(ctx context.Context, rights []right) ([]right, error) {
	var lacks []right
	seen := map[right]bool{}
	for _, r := range rights {
		if seen[r] {
			continue
		}
		seen[r] = true
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
		}}}
		answer, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("ask what you may do: %w", err)
		}
		if !answer.Status.Allowed {
			lacks = append(lacks, r)
		}
	}
	return lacks, nil
}
