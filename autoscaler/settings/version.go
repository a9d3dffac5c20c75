package settings

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/client-go/kubernetes"

	"github.com/rouse-dev/rouse/api/control"
)

const labelVersion = "app.kubernetes.io/version"

// Knative's own parts work together across one minor version.
const (
	TestedMinor = 24 // release 1.24, module knative.dev/serving v0.51
	Skew        = 1
	// moduleShift is the distance from a release's minor version to its module's: 1.0 was v0.27.
	moduleShift = 27
)

const tested = "1.24 (knative.dev/serving v0.51)"

// Problem is why functions can't be served, and what to do about it.
type Problem struct {
	// Reason is one word: NoKnative, UntestedKnative.
	Reason  string
	Message string
}

func (p *Problem) Error() string { return p.Message }

// Check reports whether this program works with the cluster's Knative Serving. A version close to the tested one, or an
// unknown one, is allowed with a remark; any other, or none, is a *[Problem]. untested allows every version.
func Check(ctx context.Context, kube kubernetes.Interface, untested bool) (version, remark string, err error) {
	ns := control.SystemNamespace
	if _, err := kube.CoreV1().Services(ns).Get(ctx, Service, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return "", "", &Problem{"NoKnative", fmt.Sprintf("there is no Service %s in the namespace %s: install Knative Serving %s, Rouse waits for it", Service, ns, tested)}
	} else if err != nil {
		return "", "", fmt.Errorf("read Service %s/%s: %w", ns, Service, err)
	}
	if version, err = versionOf(ctx, kube); err != nil {
		return "", "", err
	}
	minor, known := Minor(version)
	switch {
	case !known:
		return version, fmt.Sprintf("Knative Serving's version is %q, which says nothing; Rouse is tested with %s", version, tested), nil
	case minor == TestedMinor:
		return version, "", nil
	case untested || minor >= TestedMinor-Skew && minor <= TestedMinor+Skew:
		return version, fmt.Sprintf("Knative Serving is %s; Rouse is tested with %s", version, tested), nil
	}
	return version, "", &Problem{"UntestedKnative", fmt.Sprintf("Knative Serving is %s, and Rouse is tested with %s only: nothing was changed. Install that version of Knative, "+
		"or have the autoscaler work with it all the same by --allow-untested-knative", version, tested)}
}

func versionOf(ctx context.Context, kube kubernetes.Interface) (string, error) {
	ns := control.SystemNamespace
	for _, name := range []string{"controller", "activator"} {
		d, err := kube.AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("read Deployment %s/%s: %w", ns, name, err)
		}
		if err == nil && d.Labels[labelVersion] != "" {
			return d.Labels[labelVersion], nil
		}
	}
	s, err := kube.CoreV1().Services(ns).Get(ctx, Service, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Service %s/%s: %w", ns, Service, err)
	}
	return s.Labels[labelVersion], nil
}

var versionPattern = regexp.MustCompile(`^(?:knative-)?v?([01])\.(\d{1,4})(?:\.\d+)?(?:[-+].*)?$`)

// Minor parses a release's or a module's version; minor is the release's.
func Minor(version string) (minor int, known bool) {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return 0, false
	}
	minor, err := strconv.Atoi(m[2])
	if err != nil {
		return 0, false
	}
	if m[1] == "0" {
		minor -= moduleShift
	}
	return minor, true
}

// event is on the autoscaler's own Deployment, if there is one.
func (t taker) event(ctx context.Context, kind, reason, message string) error {
	d, err := t.kube.AppsV1().Deployments(t.namespace).Get(ctx, control.AutoscalerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Deployment %s/%s: %w", t.namespace, control.AutoscalerName, err)
	}
	now := metav1.Now()
	_, err = t.kube.CoreV1().Events(t.namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: control.AutoscalerName + ".", Namespace: t.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: t.namespace,
			Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion},
		Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: control.AutoscalerName}, ReportingController: "rouse.dev/autoscaler",
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("record an event on Deployment %s/%s: %w", t.namespace, d.Name, err)
	}
	return nil
}
