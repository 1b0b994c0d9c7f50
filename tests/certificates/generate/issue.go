package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// entity is a certificate and its key.
type entity struct {
	der []byte
	key string
}

// far is later than anybody will run this.
var far = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)

var past = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// keys are by name; a name begins with its algorithm. They protect nothing.
var keys = map[string]crypto.Signer{}

var serial int64 = 1000

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func key(name string) crypto.Signer {
	if keys[name] == nil {
		keys[name] = newKey(name)
	}
	return keys[name]
}

func newKey(name string) crypto.Signer {
	curve := map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521()}
	size := map[string]int{"r102": 1024, "r204": 2048, "r307": 3072}
	switch algorithm := name[:4]; {
	case curve[algorithm] != nil:
		return must(ecdsa.GenerateKey(curve[algorithm], rand.Reader))
	case size[algorithm] != 0:
		return must(rsa.GenerateKey(rand.Reader, size[algorithm]))
	default:
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return must(private, err)
	}
}

// edit changes a template before it is signed.
type edit func(*x509.Certificate)

// issue makes a certificate for this key; by itself where nobody signs it.
func issue(name, subject string, by *entity, edits ...edit) *entity {
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: subject},
		NotBefore: past, NotAfter: far, BasicConstraintsValid: true,
	}
	for _, edit := range edits {
		edit(template)
	}
	parent, signer := template, key(name)
	if by != nil {
		parent, signer = must(x509.ParseCertificate(by.der)), key(by.key)
	}
	return &entity{must(x509.CreateCertificate(rand.Reader, template, parent, key(name).Public(), signer)), name}
}

// root makes an authority that signs itself.
func root(name, subject string, edits ...edit) *entity {
	return issue(name, subject, nil, append([]edit{authority}, edits...)...)
}

// between makes an authority that another one signs.
func between(name, subject string, by *entity, edits ...edit) *entity {
	return issue(name, subject, by, append([]edit{authority}, edits...)...)
}

// leaf makes a server's certificate for the usual host.
func leaf(by *entity, edits ...edit) *entity { return leafOf("p256-leaf", by, edits...) }

func leafOf(name string, by *entity, edits ...edit) *entity {
	return issue(name, "hook", by, append([]edit{dns(host)}, edits...)...)
}

func authority(c *x509.Certificate) {
	c.IsCA, c.MaxPathLen, c.KeyUsage = true, -1, x509.KeyUsageCertSign
}

func isCA(c *x509.Certificate)    { c.IsCA, c.MaxPathLen = true, -1 }
func noUsage(c *x509.Certificate) { c.KeyUsage = 0 }
func noConstraints(c *x509.Certificate) {
	c.BasicConstraintsValid, c.IsCA = false, false
}
func notCA(c *x509.Certificate)      { c.IsCA = false }
func noCertSign(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }
func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = past.AddDate(-2, 0, 0), past.AddDate(-1, 0, 0)
}
func early(c *x509.Certificate) { c.NotBefore = far.AddDate(-1, 0, 0) }

func dns(names ...string) edit { return func(c *x509.Certificate) { c.DNSNames = names } }

func ip(text string) edit {
	return func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.ParseIP(text)} }
}

func named(common string) edit { return func(c *x509.Certificate) { c.Subject.CommonName = common } }

func by(algorithm x509.SignatureAlgorithm) edit {
	return func(c *x509.Certificate) { c.SignatureAlgorithm = algorithm }
}

func purposes(usages ...x509.ExtKeyUsage) edit {
	return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
}

func pathLength(length int) edit {
	return func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = length, length == 0 }
}

func extension(critical bool, value any, id ...int) edit {
	return func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: id, Critical: critical, Value: must(asn1.Marshal(value))})
	}
}

// tbs is a TBSCertificate, field by field.
type tbs struct {
	Version   asn1.RawValue `asn1:"optional"`
	Serial    *big.Int
	Algorithm asn1.RawValue
	Issuer    asn1.RawValue
	Validity  asn1.RawValue
	Subject   asn1.RawValue
	Key       asn1.RawValue
	Rest      []asn1.RawValue `asn1:"optional,omitempty"`
}

// resigned changes what crypto/x509 would not make, and signs again by that (ECDSA) key.
func resigned(e *entity, signer string, change func(*tbs)) *entity {
	var outer struct {
		TBS       asn1.RawValue
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	must(asn1.Unmarshal(e.der, &outer))
	inner := fields(outer.TBS.Bytes)
	change(inner)
	parts := [][]byte{inner.Version.FullBytes, must(asn1.Marshal(inner.Serial)), inner.Algorithm.FullBytes, inner.Issuer.FullBytes,
		inner.Validity.FullBytes, inner.Subject.FullBytes, inner.Key.FullBytes}
	for _, rest := range inner.Rest {
		parts = append(parts, rest.FullBytes)
	}
	var content []byte
	for _, part := range parts {
		content = append(content, part...)
	}
	outer.TBS = asn1.RawValue{FullBytes: must(asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: content}))}
	digest := crypto.SHA256.New()
	digest.Write(outer.TBS.FullBytes)
	signature := must(key(signer).Sign(rand.Reader, digest.Sum(nil), crypto.SHA256))
	outer.Signature = asn1.BitString{Bytes: signature, BitLength: len(signature) * 8}
	return &entity{must(asn1.Marshal(outer)), e.key}
}

func fields(content []byte) *tbs {
	var values []asn1.RawValue
	for len(content) > 0 {
		var value asn1.RawValue
		content = must(asn1.Unmarshal(content, &value))
		values = append(values, value)
	}
	inner := &tbs{Version: values[0], Algorithm: values[2], Issuer: values[3], Validity: values[4], Subject: values[5],
		Key: values[6], Rest: values[7:]}
	must(asn1.Unmarshal(values[1].FullBytes, &inner.Serial))
	return inner
}

func negative(t *tbs) { t.Serial = big.NewInt(-t.Serial.Int64()) }

// version1 leaves out the version and what it brought.
func version1(t *tbs) { t.Version, t.Rest = asn1.RawValue{}, nil }

func text(entities ...*entity) string {
	var text string
	for _, e := range entities {
		text += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.der}))
	}
	return text
}
