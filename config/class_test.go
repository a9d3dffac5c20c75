package config

import "testing"

func TestIsFunction(t *testing.T) {
	class := func(c string) map[string]string { return map[string]string{AnnotationClass: c} }
	const stock = "kpa.autoscaling.knative.dev"
	for name, tt := range map[string]struct {
		revision, podAutoscaler map[string]string
		want                    bool
	}{
		"it says so":                    {class(Class), nil, true},
		"the cluster's default":         {nil, class(Class), true},
		"another default":               {nil, class(stock), false},
		"ours is only the default":      {class(stock), class(Class), false},
		"nobody has said anything":      {nil, nil, false},
		"an empty class is the default": {class(""), class(Class), true},
	} {
		if got := IsFunction(tt.revision, tt.podAutoscaler); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
