package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"net"
	"strings"
)

const host = "hook.default.svc"

type rows []row

func (t *rows) add(name, bundle string, chain ...*entity) *row {
	*t = append(*t, row{Name: name, Host: host, Bundle: bundle, Chain: text(chain...), Key: chain[0].key})
	return &(*t)[len(*t)-1]
}

func (t *rows) at(host, name, bundle string, chain ...*entity) {
	t.add(name, bundle, chain...).Host = host
}

func table() []row {
	t := &rows{}
	ca := root("p256-ca", "authority")
	t.pinned(ca)
	t.authorities(ca)
	t.chains(ca)
	t.names(ca)
	t.constraints()
	t.purposes(ca)
	t.algorithms()
	t.bundles(ca)
	t.encodings(ca)
	return *t
}

// pinned: certificates that stand in the bundle themselves, and those of peers that are authorities.
func (t *rows) pinned(ca *entity) {
	self := leaf(nil, isCA)
	plain := leaf(nil)
	signed := leaf(ca)
	t.add("signed by the authority in the bundle", text(ca), signed)
	t.add("openssl req -x509: signs itself, CA:TRUE, is the bundle", text(self), self)
	t.add("signs itself, CA:TRUE, is not in the bundle", text(ca), self)
	t.add("signs itself, CA:FALSE, is the bundle", text(plain), plain)
	t.add("signs itself, CA:FALSE, is not in the bundle", text(ca), plain)
	t.pair("signs itself, no basicConstraints, is the bundle", one(leaf(nil, noConstraints)))
	t.add("is the bundle, its authority is not", text(signed), signed)
	t.add("is the bundle, shows its authority too", text(signed), signed, ca)
	t.pair("is in the bundle, expired", one(leaf(ca, expired)))
	t.pair("is in the bundle, not valid yet", one(leaf(ca, early)))
	t.pair("is in the bundle, for clients only", one(leaf(ca, purposes(x509.ExtKeyUsageClientAuth))))
	t.pair("is in the bundle, for another host", one(leaf(ca, dns("other.default.svc"))))
	t.pair("is in the bundle, a critical extension nobody knows", one(leaf(ca, extension(true, "x", 1, 2, 3, 4))))
	t.pair("is in the bundle, signs itself by SHA-1", one(leafOf("r2048-leaf", nil, by(x509.SHA1WithRSA))))
	another := leaf(nil, isCA)
	t.add("CA:TRUE, in the bundle one of the same key, subject and names", text(self), another)
	t.add("CA:TRUE, in the bundle one of the same key and subject, other names", text(self), leaf(nil, isCA, dns(host, "x.svc")))
	t.add("CA:FALSE, in the bundle an authority of the same key, subject and names", text(self), plain)
	t.add("CA:FALSE, in the bundle an authority of the same key and subject, other names", text(self), leaf(nil, dns(host, "x.svc")))
	t.add("openssl req -x509 -CA: CA:TRUE, signed by the authority", text(ca), leaf(ca, isCA))
	inter := between("p256-between", "between", ca)
	t.add("CA:TRUE, signed by one between", text(ca), leaf(inter, isCA), inter)
	t.add("CA:TRUE, the one between is not shown", text(ca), leaf(inter, isCA))
	t.add("CA:TRUE, its issuer is not the one in the bundle", text(root("p256-other", "authority")), leaf(ca, isCA))
	old := root("p256-old", "ended", expired)
	t.add("CA:TRUE, its authority has expired", text(old), leaf(old, isCA))
	short := root("p256-short", "short", pathLength(0))
	t.add("CA:TRUE, its authority has pathlen 0", text(short), leaf(short, isCA))
	below := between("p256-between", "between", short)
	t.add("CA:TRUE, one between below pathlen 0", text(short), leaf(below, isCA), below)
	bound := root("p256-bound", "bound", func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"svc"} })
	t.add("CA:TRUE, its authority permits such names", text(bound), leaf(bound, isCA))
	never := root("p256-bound", "bound never", func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example"} })
	t.add("CA:TRUE, its authority does not permit such names", text(never), leaf(never, isCA))
	t.add("CA:TRUE, expired", text(ca), leaf(ca, isCA, expired))
	t.add("CA:TRUE, for clients only", text(ca), leaf(ca, isCA, purposes(x509.ExtKeyUsageClientAuth)))
	t.pair("CA:TRUE, its authority is for clients only", eku(x509.ExtKeyUsageClientAuth, isCA))
}

// pair is a bundle, and a webhook's certificate.
type pair struct {
	bundle  string
	webhook *entity
}

func (t *rows) pair(name string, p pair) *row { return t.add(name, p.bundle, p.webhook) }

// one is a certificate and itself as the bundle.
func one(e *entity) pair { return pair{text(e), e} }

// eku is an authority for that purpose and what it signs.
func eku(usage x509.ExtKeyUsage, edits ...edit) pair {
	ca := root("p256-eku", "for a purpose", purposes(usage))
	return pair{text(ca), leaf(ca, edits...)}
}

// authorities: what is in the bundle, and may or may not vouch.
func (t *rows) authorities(ca *entity) {
	signedBy := func(name string, edits ...edit) {
		ca := root("p256-odd", "odd authority", edits...)
		t.add("the authority: "+name, text(ca), leaf(ca))
	}
	signedBy("expired", expired)
	signedBy("not valid yet", early)
	signedBy("no keyUsage", noUsage)
	signedBy("keyUsage without keyCertSign", noCertSign)
	signedBy("no basicConstraints", noConstraints, noUsage)
	signedBy("CA:FALSE", notCA, noUsage)
	signedBy("pathlen 0", pathLength(0))
	signedBy("for servers", purposes(x509.ExtKeyUsageServerAuth))
	signedBy("for clients", purposes(x509.ExtKeyUsageClientAuth))
	signedBy("for any purpose", purposes(x509.ExtKeyUsageAny))
	signedBy("a critical extension nobody knows", extension(true, "x", 1, 2, 3, 4))
	signedBy("an extension nobody knows", extension(false, "x", 1, 2, 3, 4))
	first := resigned(root("p256-v1", "of version 1"), "p256-v1", version1)
	t.add("the authority: version 1", text(first), resigned(leaf(ca), "p256-v1", func(inner *tbs) { issuedBy(inner, "of version 1") }))
	old, renewed := root("p256-odd", "renewed", expired), root("p256-odd", "renewed")
	t.add("the authority: expired, and renewed with the same key", text(old, renewed), leaf(old))
	t.add("the authority: two of one name, the second has signed", text(root("p256-other", "authority"), ca), leaf(ca))
	t.add("the authority: only another one of that name", text(root("p256-other", "authority")), leaf(ca))
}

func issuedBy(inner *tbs, subject string) {
	named := must(x509.ParseCertificate(root("p256-odd", subject).der))
	inner.Issuer = asn1.RawValue{FullBytes: named.RawSubject}
}

// chains: what stands between a webhook's certificate and the bundle.
func (t *rows) chains(ca *entity) {
	via := func(name string, edits ...edit) {
		inter := between("p256-between", "between", ca, edits...)
		t.add("one between: "+name, text(ca), leaf(inter), inter)
	}
	via("an authority")
	via("expired", expired)
	via("not valid yet", early)
	via("no keyUsage", noUsage)
	via("keyUsage without keyCertSign", noCertSign)
	via("no basicConstraints", noConstraints, noUsage)
	via("CA:FALSE", notCA, noUsage)
	via("for clients only", purposes(x509.ExtKeyUsageClientAuth))
	via("for any purpose", purposes(x509.ExtKeyUsageAny))
	via("a critical extension nobody knows", extension(true, "x", 1, 2, 3, 4))
	via("pathlen 0", pathLength(0))
	inter := between("p256-between", "between", ca)
	second := between("p256-second", "second", inter)
	t.add("one between: not shown", text(ca), leaf(inter))
	t.add("one between: is the bundle", text(inter), leaf(inter))
	t.add("one between: in the bundle with its authority", text(inter, ca), leaf(inter))
	t.add("one between: shown with its authority", text(ca), leaf(inter), inter, ca)
	t.add("one between: behind one that has nothing to do with it", text(ca), leaf(inter), root("p256-other", "other"), inter)
	t.add("two between", text(ca), leaf(second), inter, second)
	low := between("p256-between", "low", ca, pathLength(0))
	below := between("p256-second", "below", low)
	t.add("two between: the upper has pathlen 0", text(ca), leaf(below), below, low)
	for length, name := range []string{"pathlen 0", "pathlen 1"} {
		top := root("p256-top", name, pathLength(length))
		middle := between("p256-between", "middle", top)
		t.add("one between: the root has "+name, text(top), leaf(middle), middle)
	}
}

// names: hosts, and what certificates are for.
func (t *rows) names(ca *entity) {
	for _, r := range []struct {
		host, name string
		edits      []edit
	}{
		{host, "no subjectAltName, the host as common name", []edit{dns(), named(host)}},
		{"127.0.0.1", "no subjectAltName, the address as common name", []edit{dns(), named("127.0.0.1")}},
		{"127.0.0.1", "the address", []edit{ip("127.0.0.1")}},
		{"127.0.0.1", "the address as a DNS name", []edit{dns("127.0.0.1")}},
		{"127.0.0.1", "another address", []edit{ip("127.0.0.2")}},
		{"::1", "the address, version 6", []edit{ip("::1")}},
		{"other.default.svc", "another host", nil},
		{"hook", "the short name of the host", nil},
		{host, "upper case", []edit{dns("HOOK.Default.svc")}},
		{"HOOK.default.svc", "upper case in the URL", nil},
		{host, "a wildcard", []edit{dns("*.default.svc")}},
		{"a.hook.default.svc", "a wildcard, two labels above", []edit{dns("*.default.svc")}},
		{"default.svc", "a wildcard, no label above", []edit{dns("*.default.svc")}},
		{"hook.svc", "a wildcard with one label behind it", []edit{dns("*.svc")}},
		{"hook", "a wildcard alone", []edit{dns("*")}},
		{host, "a wildcard for a part of a label", []edit{dns("ho*.default.svc")}},
		{host, "a wildcard in the middle", []edit{dns("hook.*.svc")}},
		{host + ".", "a dot at the end of the host", nil},
		{host + ".", "a dot at the end of the host, a wildcard", []edit{dns("*.default.svc")}},
		{"hook.svc.", "a dot at the end of the host, a wildcard with one label behind it", []edit{dns("*.svc")}},
		{host, "a dot at the end of the name", []edit{dns(host + ".")}},
		{"my_hook.default.svc", "an underscore", []edit{dns("my_hook.default.svc")}},
		{host, "a second name", []edit{dns("other.svc", host)}},
		{host, "a garbled name beside it", []edit{dns("not a name", host)}},
	} {
		t.at(r.host, "name: "+r.name, text(ca), leaf(ca, r.edits...))
	}
	t.add("expired", text(ca), leaf(ca, expired))
	t.add("not valid yet", text(ca), leaf(ca, early))
}

// constraints: authorities that may vouch for some names only.
func (t *rows) constraints() {
	under := func(name string, limit edit, edits ...edit) {
		ca := root("p256-bound", "bound", limit)
		t.add("name constraints: "+name, text(ca), leaf(ca, edits...))
	}
	permit := func(names ...string) edit { return func(c *x509.Certificate) { c.PermittedDNSDomains = names } }
	exclude := func(names ...string) edit { return func(c *x509.Certificate) { c.ExcludedDNSDomains = names } }
	_, ten, _ := net.ParseCIDR("10.0.0.0/8")
	under("permits its domain", permit("default.svc"))
	under("permits its domain, written with a dot", permit(".default.svc"))
	under("permits another domain", permit("example"))
	under("permits another domain beside it", permit("example", "svc"))
	under("excludes its domain", exclude("default.svc"))
	under("excludes another domain", exclude("example"))
	under("permits its domain, not a second name", permit("default.svc"), dns(host, "x.example"))
	under("permits names only, and it has an address too", permit("default.svc"), func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("10.1.2.3")} })
	under("permits addresses only", func(c *x509.Certificate) { c.PermittedIPRanges = []*net.IPNet{ten} })
	under("permits other addresses than it has", func(c *x509.Certificate) { c.PermittedIPRanges = []*net.IPNet{ten} },
		func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("11.1.2.3")} })
	under("permits mail only", func(c *x509.Certificate) { c.PermittedEmailAddresses = []string{"example"} })
	under("excludes a wildcard's domain", exclude("a.default.svc"), dns("*.default.svc", host))
	under("permits its domain, it has no subjectAltName", permit("default.svc"), dns(), named(host))
	// A directoryName, which Go does not compare.
	directory := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: must(asn1.Marshal([]any{}))}
	base := asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: must(asn1.Marshal(directory))}
	permitted := asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: must(asn1.Marshal(base))}
	under("of directory names", extension(false, []asn1.RawValue{permitted}, 2, 5, 29, 30))
	under("of directory names, critical", extension(true, []asn1.RawValue{permitted}, 2, 5, 29, 30))
}

// purposes: extendedKeyUsage.
func (t *rows) purposes(ca *entity) {
	for _, r := range []struct {
		name   string
		usages []x509.ExtKeyUsage
	}{
		{"servers", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		{"clients", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{"any", []x509.ExtKeyUsage{x509.ExtKeyUsageAny}},
		{"servers and clients", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		{"clients and any", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageAny}},
	} {
		t.add("extendedKeyUsage: "+r.name, text(ca), leaf(ca, purposes(r.usages...)))
	}
	t.add("extendedKeyUsage: one that nobody knows", text(ca), leaf(ca, func(c *x509.Certificate) {
		c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3, 4}}
	}))
}

// algorithms: keys and signatures.
func (t *rows) algorithms() {
	for _, name := range []string{"p256", "p384", "p521", "ed25519", "r1024", "r2048", "r3072"} {
		t.pair("leaf: "+name, leafUnder("p256-ca", name+"-leaf"))
		if name != "p256" {
			t.pair("authority: "+name, leafUnder(name+"-ca", "p256-leaf"))
		}
	}
	for _, r := range []struct {
		name, signer string
		algorithm    x509.SignatureAlgorithm
	}{
		{"RSA with SHA-1", "r2048-ca", x509.SHA1WithRSA},
		{"RSA with SHA-384", "r2048-ca", x509.SHA384WithRSA},
		{"RSA with SHA-512", "r2048-ca", x509.SHA512WithRSA},
		{"RSA-PSS with SHA-256", "r2048-ca", x509.SHA256WithRSAPSS},
		{"RSA-PSS with SHA-512", "r2048-ca", x509.SHA512WithRSAPSS},
		{"ECDSA P-256 with SHA-1", "p256-ca", x509.ECDSAWithSHA1},
		{"ECDSA P-256 with SHA-384", "p256-ca", x509.ECDSAWithSHA384},
		{"ECDSA P-256 with SHA-512", "p256-ca", x509.ECDSAWithSHA512},
		{"ECDSA P-384 with SHA-256", "p384-ca", x509.ECDSAWithSHA256},
		{"ECDSA P-384 with SHA-512", "p384-ca", x509.ECDSAWithSHA512},
	} {
		t.pair("signed by "+r.name, leafUnder(r.signer, "p256-leaf", by(r.algorithm)))
	}
	weak := root("r2048-ca", "signs itself by SHA-1", by(x509.SHA1WithRSA))
	t.add("the authority signs itself by SHA-1", text(weak), leaf(weak))
	suites := func(name string, suites ...uint16) {
		t.pair("TLS 1.2: "+name, leafUnder("p256-ca", "p256-leaf")).Suites = suites
	}
	suites("AES-GCM", tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
	suites("ChaCha20", tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)
	suites("CBC only", tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA)
}

// leafUnder is an authority with that key, and a webhook with the other.
func leafUnder(ca, name string, edits ...edit) pair {
	authority := root(ca, "authority of "+ca)
	return pair{text(authority), leafOf(name, authority, edits...)}
}

// bundles: what stands around the authority.
func (t *rows) bundles(ca *entity) {
	good, webhook := text(ca), leaf(ca)
	section := func(kind, body string) string {
		return "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n"
	}
	for _, b := range []struct{ name, bundle string }{
		{"empty", ""},
		{"prose", "nothing here\n"},
		{"prose around it", "# our authority\n" + good + "# the end\n"},
		{"a section that is not base64 before it", section("CERTIFICATE", "!!!!") + good},
		{"a section that is not base64 behind it", good + section("CERTIFICATE", "!!!!")},
		{"a section that is no certificate before it", section("CERTIFICATE", "AQIDBA==") + good},
		{"a section that is no certificate behind it", good + section("CERTIFICATE", "AQIDBA==")},
		{"a section of another kind", section("X509 CRL", "AQIDBA==") + good},
		{"a torn section before it", good[:len(good)/2] + "\n" + good},
		{"a torn section behind it", good + good[:len(good)/2]},
		{"nothing but a section that is no certificate", section("CERTIFICATE", "AQIDBA==")},
		{"nothing but a torn section", good[:len(good)/2]},
		{"a header in its section", strings.Replace(good, "-----\n", "-----\nProc-Type: 4\n\n", 1)},
		{"as TRUSTED CERTIFICATE", strings.ReplaceAll(good, "CERTIFICATE", "TRUSTED CERTIFICATE")},
		{"lines that end as on Windows", strings.ReplaceAll(good, "\n", "\r\n")},
		{"on one line", strings.Replace(strings.ReplaceAll(good, "\n", ""), "-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\n", 1)},
		{"blanks before the lines", "  " + strings.ReplaceAll(good, "\n", "\n  ")},
		{"no newline at the end", strings.TrimSpace(good)},
		{"glued to another one before it", strings.TrimSpace(text(root("p256-other", "other"))) + good},
		{"glued to another one behind it", strings.TrimSpace(good) + text(root("p256-other", "other"))},
		{"twice", good + good},
	} {
		t.add("bundle: "+b.name, b.bundle, webhook)
	}
}

// encodings: what parsers may disagree about.
func (t *rows) encodings(ca *entity) {
	policies := []any{[]any{asn1.ObjectIdentifier{1, 2, 3}}}
	t.add("serial number below 0", text(ca), resigned(leaf(ca), "p256-ca", negative))
	below := resigned(root("p256-odd", "below 0"), "p256-odd", negative)
	t.add("the authority: serial number below 0", text(below), resigned(leaf(ca), "p256-odd", func(inner *tbs) { issuedBy(inner, "below 0") }))
	t.add("a critical extension nobody knows", text(ca), leaf(ca, extension(true, "x", 1, 2, 3, 4)))
	t.add("an extension nobody knows", text(ca), leaf(ca, extension(false, "x", 1, 2, 3, 4)))
	t.add("certificatePolicies", text(ca), leaf(ca, extension(false, policies, 2, 5, 29, 32)))
	t.add("certificatePolicies, critical", text(ca), leaf(ca, extension(true, policies, 2, 5, 29, 32)))
	t.add("keyUsage without anything for TLS", text(ca), leaf(ca, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }))
}
