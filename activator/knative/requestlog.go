package knative

import (
	"net/http"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"knative.dev/serving/pkg/activator/handler"
	"knative.dev/serving/pkg/apis/serving"
	pkghttp "knative.dev/serving/pkg/http"
	o11yconfigmap "knative.dev/serving/pkg/observability/configmap"
)

func updateRequestLog(logger *zap.SugaredLogger, h *pkghttp.RequestLogHandler) func(*corev1.ConfigMap) {
	return func(raw *corev1.ConfigMap) {
		cfg, err := o11yconfigmap.Parse(raw)
		if err != nil {
			logger.Errorw("the request log stays as it is: its ConfigMap can't be read", zap.Error(err))
			return
		}
		template := ""
		if cfg.EnableRequestLog {
			template = cfg.RequestLogTemplate
		}
		if err := h.SetTemplate(template); err != nil {
			logger.Errorw("the request log stays as it is: its template is wrong", zap.Error(err), "template", template)
		}
	}
}

// Knative's chain has put the revision into the context.
func requestLogInput(r *http.Request, resp *pkghttp.RequestLogResponse) *pkghttp.RequestLogTemplateInput {
	rev := handler.RevisionFrom(r.Context())
	return &pkghttp.RequestLogTemplateInput{Request: r, Response: resp, Revision: &pkghttp.RequestLogRevision{
		Name: rev.Name, Namespace: rev.Namespace,
		Service: rev.Labels[serving.ServiceLabelKey], Configuration: rev.Labels[serving.ConfigurationLabelKey],
	}}
}
