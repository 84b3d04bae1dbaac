// SPDX-License-Identifier: Apache-2.0

package hubstate

import "slices"

// copyOf identifies one copy of a registry.
type copyOf struct {
	identity *Identity // nil: no hub has started on it
	revision uint64
}

// followed reports whether the other copy was written later than this one. It uses no clock (I11): a loss raises the epoch, and the file's
// revision rises as long as the ledger is the same. If neither decides, the existing copy counts as later than the backup.
func (there copyOf) followed(other copyOf) bool {
	switch {
	case other.identity == nil:
		return false
	case there.identity == nil:
		return true
	case there.identity.ID == other.identity.ID && there.identity.ID != unnamed:
		return other.revision > there.revision
	default:
		return other.identity.Epoch > there.identity.Epoch
	}
}

// Merge merges the records of two copies of a registry. The result has the order of older, followed by the records that only newer has.
func Merge(newer, older []Record) []Record {
	out := slices.Clone(older)
	for _, r := range newer {
		at := slices.IndexFunc(out, func(o Record) bool { return o.ClusterID == r.ClusterID })
		if at < 0 {
			out = append(out, r)
		} else {
			out[at] = mergeRecord(r, out[at])
		}
	}
	return out
}

// mergeRecord merges two records with the same name. The newer one wins. Entries that only the older record has are kept: they were not
// reverted, but written before the newer file was replaced from elsewhere. So the hub waits for the cluster that has the name, and a
// forgotten cluster stays out (I4), unless the newer record has later entries.
func mergeRecord(newer, older Record) Record {
	out := newer
	knows := func(uid string) bool {
		return newer.UID == uid || slices.ContainsFunc(newer.Forgotten, func(f Forgotten) bool { return f.UID == uid })
	}
	if newer.UID == "" && older.UID != "" && !knows(older.UID) {
		out = older
		out.Forgotten = newer.Forgotten
	}
	if out.UID == older.UID && older.Incarnation > out.Incarnation {
		out.Incarnation, out.Term = older.Incarnation, older.Term
	}
	var stones []Forgotten
	for _, f := range older.Forgotten {
		if !knows(f.UID) {
			stones = append(stones, f)
		}
	}
	for _, keys := range [][]string{newer.RefusedKeys, older.RefusedKeys} {
		out.Revoke(keys)
	}
	out.RevokeBefore(newer.RevokedAt)
	out.RevokeBefore(older.RevokedAt)
	if newer.UID == older.UID && older.RevokedAt.After(newer.RevokedAt) { // keys of the newer record may have been issued before that
		out.Keys = older.Keys
	}
	out.Forgotten = slices.Concat(stones, out.Forgotten)
	out.Forgotten = out.Forgotten[max(0, len(out.Forgotten)-MaxForgotten):]
	return out
}

// beyond returns the clusters that the merged registry has and the backup lacks: registered ones and forgotten ones.
func beyond(backup, merged []Record) (registered, forgotten []string) {
	for _, r := range merged {
		var before Record
		if at := slices.IndexFunc(backup, func(b Record) bool { return b.ClusterID == r.ClusterID }); at >= 0 {
			before = backup[at]
		}
		if r.UID != "" && r.UID != before.UID {
			registered = append(registered, r.ClusterID)
		}
		if slices.ContainsFunc(r.Forgotten, func(f Forgotten) bool { return !f.Lifted && !before.Forgot(f.UID) }) {
			forgotten = append(forgotten, r.ClusterID)
		}
	}
	return registered, forgotten
}
