// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"navix.sh/atoll/pkg/envelope"
)

// MigrateShort and MigrateLong describe the commands that migrate.
const (
	MigrateShort = "Move what a hub keeps from bbolt to etcd, or back"
	MigrateLong  = `Move what a hub keeps from bbolt to etcd, or back.

It copies all entries, compares both sides, and leaves the source as it is. No hub opens the target before the copy is complete; a
migration that was interrupted is run again. A target that has a store already is refused. Start hubs on the target only: one that
starts on the source later finds out that it is older, and serves no claim key before every cluster has told its own.

No hub may run on either. With --online hubs run on the source meanwhile: it copies what they write until they have stopped, and then
what is left, so that claims with a key wait for seconds.

With --encryption-key-file the target is encrypted, and the source may be.`
)

// MigrateFlags are the flags of the commands that migrate.
type MigrateFlags struct {
	from, to, keyFile string
	online, force     bool
	etcd              EtcdFlags
}

// Bind adds the flags.
func (f *MigrateFlags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "from", "", "bbolt:DIRECTORY or etcd:URL,URL: what is there (required)")
	flags.StringVar(&f.to, "to", "", "the other one: where it goes (required)")
	flags.StringVar(&f.keyFile, "encryption-key-file", "", "the hub's file of encryption keys, if either is encrypted")
	flags.BoolVar(&f.online, "online", false, "begin while hubs run, and end once they have stopped")
	flags.BoolVar(&f.force, "force", false, "take the place of files that are at the target; they are kept beside it")
	f.etcd.Bind(flags)
}

// Run runs the migration and prints what was done.
func (f *MigrateFlags) Run(ctx context.Context, out io.Writer) error {
	var m Migration
	var err error
	if m.From, err = f.etcd.place("--from", f.from); err != nil {
		return err
	}
	if m.To, err = f.etcd.place("--to", f.to); err != nil {
		return err
	}
	if m.Sealer, err = envelope.Open(f.keyFile); err != nil {
		return err
	}
	m.Online, m.Force = f.online, f.force
	m.Say = func(text string) { _, _ = fmt.Fprintln(out, text) }
	done, err := m.Run(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "migrated %s to %s; hubs were kept out for %s\n", m.From, m.To, done.CutoverTime.Round(time.Millisecond))
	for _, kind := range kinds {
		if err == nil {
			_, err = fmt.Fprintf(out, "%s: %d entries, both sides have sha256 %s\n", kind, done.Entries[kind], done.Sums[kind])
		}
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
