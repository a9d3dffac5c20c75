package knative

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

type clientKeys struct {
	store *keys.Store
	log   *slog.Logger
}

// A Secret without the entry declares no keys; an invalid one changes nothing.
func (k clientKeys) secret(s *corev1.Secret) {
	if s.Name != control.KeysSecret {
		return
	}
	raw := s.Data[control.KeysSecretKey]
	if len(raw) == 0 {
		k.store.Load(&apikey.File{})
		return
	}
	if err := k.store.Take(raw); err != nil {
		k.log.Error("the keys of clients stay as they were", "secret", control.KeysSecret, "error", err)
		return
	}
	k.log.Info("the keys of clients were read", "secret", control.KeysSecret, "keys", k.store.Len())
}

// Nobody may use undeclared keys.
func (k clientKeys) deleted(s *corev1.Secret) {
	if s.Name == control.KeysSecret {
		k.store.Load(&apikey.File{})
		k.log.Warn("the Secret of the keys of clients was deleted: no key counts", "secret", control.KeysSecret)
	}
}

// followKeys returns nil if keys are off. It blocks until the Secret has been read.
func followKeys(ctx context.Context, secret cache.SharedIndexInformer, others keys.Others, log *slog.Logger) (*keys.Store, error) {
	if secret == nil {
		return nil, nil
	}
	k := clientKeys{store: keys.NewStore(nil).Among(others), log: log}
	if err := follow(ctx, secret, on(k.secret, k.deleted), "the keys of clients"); err != nil {
		return nil, err
	}
	return k.store, nil
}

// follow returns once h has seen all of a started informer.
func follow(ctx context.Context, informer cache.SharedIndexInformer, h cache.ResourceEventHandler, what string) error {
	registered, err := informer.AddEventHandler(h)
	if err != nil {
		return fmt.Errorf("watch %s: %w", what, err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
	}
	return nil
}
