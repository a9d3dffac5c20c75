package kn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// headerToken carries the cluster's token: the API server's proxy keeps Authorization for itself.
const headerToken = "X-Rouse-Token"

// proxied is the autoscaler's Service as the API server's proxy names it.
const proxied = "http:" + control.AutoscalerName + ":http"

var (
	errNotInstalled = errors.New("this cluster has no Rouse: install it with `kn rouse install`")
	errNoLeader     = errors.New("no autoscaler leads, though Rouse is installed: look at `kubectl get pods -n " + control.SystemNamespace + " -l app=" + control.AutoscalerName + "`; a new leader takes over within seconds where one runs")
)

// door is the autoscaler's administrative API, by way of the API server.
type door struct {
	base  string
	token string
	http  *http.Client
}

// door reads the cluster's token and returns the way to the autoscaler.
func (c *cluster) door(ctx context.Context) (*door, error) {
	host, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	secret, err := c.kube.CoreV1().Secrets(control.SystemNamespace).Get(ctx, control.ControlSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, c.absent(ctx)
	case err != nil:
		return nil, refusal(err, "get", secrets, control.SystemNamespace, control.ControlSecret)
	}
	token := strings.TrimSpace(string(secret.Data[control.ControlSecretKey])) // an editor leaves a line end
	if token == "" {
		return nil, errNoLeader // its first act is to make the token
	}
	path := "/api/v1/namespaces/" + control.SystemNamespace + "/services/" + proxied + "/proxy"
	return &door{host.JoinPath(path).String(), token, c.http}, nil
}

// absent says why there is no token.
func (c *cluster) absent(ctx context.Context) error {
	_, err := c.kube.CoreV1().Services(control.SystemNamespace).Get(ctx, control.AutoscalerName, metav1.GetOptions{})
	if err == nil {
		return errNoLeader
	}
	return errNotInstalled
}

// open sends a request and returns the answer, whatever its size. An answer that is
// no success comes back as an error: an *[api.Error] where the autoscaler refused.
func (d *door) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(headerToken, d.token)
	resp, err := d.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, d.fault(resp, method)
	}
	return resp, nil
}

// call sends a request and decodes the answer into out.
func (d *door) call(ctx context.Context, method, path string, out any) error {
	return d.send(ctx, method, path, nil, out)
}

// send is call with a body.
func (d *door) send(ctx context.Context, method, path string, body io.Reader, out any) error {
	resp, err := d.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the autoscaler's answer: %w", err)
	}
	return nil
}

// fault reads why a request failed: the API server says it in a Status, the
// autoscaler in an OpenAI error body.
func (d *door) fault(resp *http.Response, method string) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(raw, &body) // neither form: the text itself is the message
	switch {
	case body.Error.Message != "" && resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the autoscaler does not take the token of the Secret %s/%s: it was changed; `kubectl rollout restart -n %[1]s deployment/%[3]s` makes it read it again", control.SystemNamespace, control.ControlSecret, control.AutoscalerName)
	case body.Error.Message != "":
		return api.Errorf(resp.StatusCode, body.Error.Code, "%s", body.Error.Message)
	case body.Kind != "Status":
		return fmt.Errorf("the autoscaler answered %s: %s", resp.Status, bytes.TrimSpace(raw))
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
