package kn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

// headerToken carries the cluster's token: the API server's proxy consumes Authorization.
const headerToken = "X-Rouse-Token"

// Services in the form for the API server's proxy.
const (
	proxied      = "http:" + control.AutoscalerName + ":http"
	proxiedFront = "http:" + control.FrontDoorName + ":http"
)

var (
	errNotInstalled = errors.New("this cluster has no Rouse: " + applyCommand)
	errNoLeader     = errors.New("no autoscaler leads, though Rouse is installed: look at `kubectl get pods -n " + control.SystemNamespace + " -l app=" + control.AutoscalerName + "`; a new leader takes over within seconds where one runs")
)

// door returns a client of the administrative API, through the API server.
func (c *cluster) door(ctx context.Context) (*verb.Client, error) {
	at, err := c.proxy(proxied)
	if err != nil {
		return nil, err
	}
	secret, err := get[corev1.Secret](ctx, c, secrets, control.SystemNamespace, control.ControlSecret)
	if apierrors.IsNotFound(err) {
		err = errNotInstalled
		if _, absent := c.kube.CoreV1().Services(control.SystemNamespace).Get(ctx, control.AutoscalerName, metav1.GetOptions{}); absent == nil {
			err = errNoLeader
		}
	}
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(string(secret.Data[control.ControlSecretKey])) // an editor leaves a line end
	if token == "" {
		return nil, errNoLeader // a leader first creates it
	}
	base := at.String()
	return &verb.Client{
		HTTP: c.http, URL: func(path string) string { return base + path }, Peer: "the cluster",
		Header: http.Header{headerToken: {token}}, Refused: fault,
	}, nil
}

func (c *cluster) proxy(service string) (*url.URL, error) {
	host, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	host.Path = strings.TrimSuffix(host.Path, "/") + "/api/v1/namespaces/" + control.SystemNamespace + "/services/" + service + "/proxy"
	return host, nil
}

// fault reads why a request failed: the API server answers with a Status, the autoscaler with an OpenAI error body,
// which is left to the client.
func fault(resp *http.Response, method string, raw []byte) error {
	var body struct {
		Kind    string          `json:"kind"`
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(raw, &body) // neither form
	switch {
	case body.Error != nil && resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the autoscaler does not take the token of the Secret %s/%s: it was changed; `kubectl rollout restart -n %[1]s deployment/%[3]s` makes it read it again", control.SystemNamespace, control.ControlSecret, control.AutoscalerName)
	case body.Kind != "Status":
		return nil
	case resp.StatusCode == http.StatusForbidden:
		verb := "get"
		if method == http.MethodPost {
			verb = "create"
		}
		return &denied{right{verb: verb, resource: "services", subresource: "proxy", namespace: control.SystemNamespace, name: proxied}, errors.New(body.Message)}
	case resp.StatusCode == http.StatusNotFound:
		return errNotInstalled
	case resp.StatusCode == http.StatusServiceUnavailable:
		return errNoLeader
	}
	return fmt.Errorf("the API server answered %s: %s", resp.Status, body.Message)
}
