// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/monitoring"
	"navix.sh/atoll/e2e/must"
)

// What the charts install is the plain files, unchanged: helm's templates would take the rules' own for theirs.
func TestMonitoringHasOneSource(t *testing.T) {
	for chart, objects := range map[string]harness.Objects{"hub": renderHub(t, everything), "worker": renderWorker(t, allOfWorker)} {
		file, err := os.ReadFile(filepath.Join(helm.Chart(chart), "files", "monitoring", "rules.yaml"))
		must.Succeed(t, err)
		rule := objects.Find("PrometheusRule", "atoll-"+chart)
		spec, err := yaml.Marshal(rule.Object["spec"])
		must.Succeed(t, err)
		plain, err := monitoring.ReadRules(file)
		must.Succeed(t, err)
		installed, err := monitoring.ReadRules(spec)
		if diff := cmp.Diff(plain, installed); diff != "" || err != nil || rule.GetLabels()["release"] != "prometheus" {
			t.Errorf("%s: %v (-file +chart):\n%s", chart, err, diff)
		}
	}
	file, err := os.ReadFile(filepath.Join(helm.Chart("hub"), "files", "monitoring", "dashboard.json"))
	must.Succeed(t, err)
	dashboard := as[corev1.ConfigMap](t, renderHub(t, everything), "ConfigMap", "atoll-hub-dashboard")
	if diff := cmp.Diff(string(file), dashboard.Data["atoll.json"]); diff != "" || dashboard.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v, dashboard (-file +chart):\n%s", dashboard.Labels, diff)
	}
}

// With an endpoint both programs trace to it, and the network lets them.
func TestTracing(t *testing.T) {
	hub, worker := renderHub(t, everything), renderWorker(t, allOfWorker)
	for name, pod := range map[string]corev1.PodSpec{
		"atoll-hub":    as[appsv1.StatefulSet](t, hub, "StatefulSet", "atoll-hub").Spec.Template.Spec,
		"atoll-worker": as[appsv1.Deployment](t, worker, "Deployment", "atoll-worker").Spec.Template.Spec,
	} {
		args, env := map[string]bool{}, map[string]string{}
		for _, arg := range pod.Containers[0].Args {
			args[arg] = true
		}
		for _, e := range pod.Containers[0].Env {
			env[e.Name] = e.Value
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				env[e.Name] = e.ValueFrom.SecretKeyRef.Name
			}
		}
		delete(env, "GOMEMLIMIT")
		delete(env, "POD_IP")
		want := map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.05",
			"OTEL_EXPORTER_OTLP_HEADERS": "collector"}
		if diff := cmp.Diff(want, env); diff != "" || !args["--otlp-endpoint=http://collector.monitoring:4317"] {
			t.Errorf("%s: arguments %v, environment (-want +got):\n%s", name, args, diff)
		}
	}
	for name, objects := range map[string]harness.Objects{"atoll-hub": hub, "atoll-worker": worker} {
		reached := false
		for _, rule := range as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", name).Spec.Egress {
			reached = reached || len(rule.Ports) > 0 && rule.Ports[0].Port.IntValue() == 4317
		}
		if !reached {
			t.Errorf("%s may not connect to the collector", name)
		}
	}
}
