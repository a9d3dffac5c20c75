package kn

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/config/apikey"
)

// keysCommand declares the keys of the cluster's clients.
func keysCommand() *cobra.Command {
	open := func(cmd *cobra.Command) (verb.KeysFile, error) {
		c, err := connect(cmd)
		if err != nil {
			return nil, err
		}
		return keysSecret{c}, nil
	}
	return shared.Keys(open, func(*cobra.Command) {}, func(verb.KeysFile) string { return "" })
}

// keysSecret is the Secret of the keys.
type keysSecret struct{ *cluster }

func (keysSecret) String() string {
	return "Secret " + control.SystemNamespace + "/" + control.KeysSecret
}

// Read implements [verb.KeysFile].
func (k keysSecret) Read(ctx context.Context) ([]byte, error) {
	s, err := k.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Data[control.KeysSecretKey], nil
}

func (k keysSecret) get(ctx context.Context) (*corev1.Secret, error) {
	s, err := k.kube.CoreV1().Secrets(control.SystemNamespace).Get(ctx, control.KeysSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s: install Rouse first, or this version of it (kn rouse install)", k)
	case err != nil:
		return nil, refusal(err, "get", secrets, control.SystemNamespace, control.KeysSecret)
	}
	return s, nil
}

// Change implements [verb.KeysFile]. What somebody else changes meanwhile is not lost.
func (k keysSecret) Change(ctx context.Context, change func([]byte) ([]byte, error)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // the caller names the Secret
		s, err := k.get(ctx)
		if err != nil {
			return err
		}
		raw, err := change(s.Data[control.KeysSecretKey])
		if err != nil {
			return err
		}
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[control.KeysSecretKey] = raw
		_, err = k.kube.CoreV1().Secrets(control.SystemNamespace).Update(ctx, s, metav1.UpdateOptions{})
		if err == nil || apierrors.IsConflict(err) {
			return err // a conflict is tried again
		}
		return refusal(err, "update", secrets, control.SystemNamespace, control.KeysSecret)
	})
}

// letIn keeps a cluster open whose clients needed no key in the version that is there: the entry
// for clients without a key is made, once. What is new begins closed.
func (i *installer) letIn(ctx context.Context) error {
	d, err := i.kube.AppsV1().Deployments(control.SystemNamespace).Get(ctx, control.ActivatorName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return refusal(err, "get", deployments, control.SystemNamespace, control.ActivatorName)
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "ROUSE_REQUIRE_KEYS" }) {
			return nil
		}
	}
	raw, err := apikey.Add(nil, apikey.Key{Name: apikey.Anonymous})
	if err != nil {
		return err
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: control.KeysSecret}, Data: map[string][]byte{control.KeysSecretKey: raw}}
	_, err = i.kube.CoreV1().Secrets(control.SystemNamespace).Create(ctx, s, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return refusal(err, "create", secrets, control.SystemNamespace, control.KeysSecret)
	}
	i.say("clients needed no key so far: they are let in as before, until: kn rouse keys revoke %s", apikey.Anonymous)
	return nil
}

// sayKeys says how clients get in where no key is declared.
func (i *installer) sayKeys(ctx context.Context) {
	raw, err := keysSecret{i.cluster}.Read(ctx)
	if err != nil || len(raw) > 0 { // who may not read it knows of it
		return
	}
	i.say("clients need a key: kn rouse keys create NAME")
}
