// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"time"

	"navix.sh/atoll/pkg/telemetry"
)

// exportTimeout bounds how long a collector may take for a batch. It is shorter than a strict call's patience.
const exportTimeout = 2 * time.Second

// collector sends lines to an OTLP collector. The body of each record is the same JSON as a line in a file.
type collector struct{ to *telemetry.Logs }

// Collector returns the sink of a collector.
func Collector(to *telemetry.Logs) Sink { return collector{to} }

func (collector) Name() string   { return "otlp" }
func (c collector) Close() error { return c.to.Close() }

func (c collector) Write(lines []Line) error {
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	out := make([]telemetry.LogLine, 0, len(lines))
	for _, line := range lines {
		out = append(out, telemetry.LogLine{Time: line.Event.Time, Name: "atoll.audit", Body: string(bytes.TrimSpace(line.Text))})
	}
	return c.to.Export(ctx, out)
}
