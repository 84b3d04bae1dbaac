// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/pkg/telemetry"
)

// podWrite is the span of a write that hands out or ends a sandbox, its repetitions included.
const podWrite = "pod write"

func endWrite(span trace.Span, pod *corev1.Pod, sandbox string, got outcome) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Pod.String(pod.Namespace+"/"+pod.Name), telemetry.Sandbox.String(sandbox), telemetry.Outcome.String(string(got)))
	if got != written {
		span.SetStatus(codes.Error, string(got))
	}
	span.End()
}
