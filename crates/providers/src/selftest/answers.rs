//! Answers that other implementations gave to fixed questions.
//!
//! The kernel's come from Linux 6.1 through AF_ALG in a User-Mode-Linux guest; the others from the named program. The
//! questions are formulae: byte `i` of the key is `7 * i + 1`, of the IV `5 * i + 3`, of the plaintext `i`, all
//! modulo 256.

use std::iter;

use casemate_primitives::hex;

/// One question with its answer.
pub(super) struct Answer {
    pub key: Vec<u8>,
    pub iv: Vec<u8>,
    pub plaintext: Vec<u8>,
    pub ciphertext: Vec<u8>,
    pub source: &'static str,
}

/// The answers that are known for an algorithm.
pub(super) fn of(algorithm: &str) -> impl Iterator<Item = Answer> {
    let known =
        KERNEL.iter().zip(iter::repeat("Linux 6.1")).chain(OPENSSL.iter().zip(iter::repeat("OpenSSL 3.0")));
    known.filter(move |((name, ..), _)| *name == algorithm).map(
        |(&(_, key_len, iv_len, ciphertext), source)| {
            // OK to unwrap: the tables below hold pairs of hexadecimal digits.
            let ciphertext = hex::decode(ciphertext).unwrap();
            let (key, iv) = (bytes(key_len, 7, 1), bytes(iv_len, 5, 3));
            Answer { key, iv, plaintext: bytes(ciphertext.len(), 1, 0), ciphertext, source }
        },
    )
}

fn bytes(len: usize, factor: u8, first: u8) -> Vec<u8> {
    iter::successors(Some(first), |byte| Some(byte.wrapping_add(factor))).take(len).collect()
}

/// Algorithm, key length, IV length, ciphertext.
type Row = (&'static str, usize, usize, &'static str);

#[rustfmt::skip]
const KERNEL: &[Row] = &[
    ("ecb(aes)", 32, 0, "0dbb6cbd7a1a6dc6ec2d427a86b890512e6f917f0670fa70d859ee94d25bcadb"),
    ("cbc(aes)", 32, 16, "0b73bda04779cde871bb1dbf29c7bca5b32741e7dccce68b837e8c493ea1e9ce"),
    ("ctr(aes)", 32, 16, "8079b11dcc0248a5b4ef9ea65a7cb4ec51c9b216ad094fd90e11e98ae5ad2c9adbd432cccf9349"),
    ("cts(cbc(aes))", 32, 16, "0b73bda04779cde871bb1dbf29c7bca5945f71a37ec8f05387349a7f8930de22b32741e7dccce6"),
    ("xts(aes)", 64, 16, "ccff1340222cb05e30659d06ca1ed34bffa9207c126089a9c83ed720d76cef128d0ed5dfb5c9e4"),
    ("lrw(aes)", 48, 16, "c7f25ead686e6d075971220be511e1bf52fffeaddefe632b30c981f136804baf931bfdbecd53f538248606ed184c505b"),
    ("essiv(cbc(aes),sha256)", 32, 16, "74d15abbc2e596ea14709d7252cdf012bc8ccfaf9bf8477ff806e1cde038787c"),
    ("ecb(aes)", 16, 0, "16b3b09e86a33f42a5fe06ac4114c3daa59c87b0fe561cebb3afaadcb7a2ad66"),
    ("cbc(aes)", 16, 16, "b84a9ed1dd0319c9bc762cf92102fe93b608e2324827d3354b4dc735f009468d"),
    ("ctr(aes)", 16, 16, "3c18906d78927c759705184d4ea791e19d17d3c22c33f11e07e354b16e7573aa4b105e885049b2"),
    ("cts(cbc(aes))", 16, 16, "b84a9ed1dd0319c9bc762cf92102fe93a23d6816079bee1ee57399f108e15351b608e2324827d3"),
    ("xts(aes)", 32, 16, "1239421b9efa7076b9d5c750116ff184b09e287e437731266a0236213fb9f5ac701ec79e2c8b3a"),
    ("lrw(aes)", 32, 16, "12ea3e8c1ce3ae18312e889348324a37864e2a3446d6c43e4d41fbf9b059a38cdda50ca7a5f2ee74e0c6304060e60cec"),
    ("essiv(cbc(aes),sha256)", 16, 16, "24d769ac805bb9f0148adcd182762d6e3b2b97834186b121359f8df077180d3b"),
    ("ecb(aes)", 24, 0, "bfe6d8beb732ceeeeaea5d350ffc29b26199b965cba7567db8a42a67ec858961"),
    ("cbc(aes)", 24, 16, "99b1e2196ff9e95778e3f9935c0c117c8d1f63ab68f775b3d73d01141eaf85e1"),
    ("ctr(aes)", 24, 16, "6f370ccf781cac9fa7fd7dc7001c68a4d9224ae37e24bfd5975799d8e946bead9c332531ec646d"),
    ("cts(cbc(aes))", 24, 16, "99b1e2196ff9e95778e3f9935c0c117c7099af1d2eef7067bbdc1772b9ddd57c8d1f63ab68f775"),
    ("xts(aes)", 48, 16, "53bdce476f9841eca282df0e21ad1265c3a2bfc5b9607dedf8b932fc5a7f8a6080853eac2c40e0"),
    ("lrw(aes)", 40, 16, "37240106f6927ab1379e9cc2d9f89311ccee089218c2ac66ab2d5ab1cf8c3ce9ca2eb132786ca700fe20e43eb80dcbfc"),
    ("essiv(cbc(aes),sha256)", 24, 16, "fa561e001eae821d9023e0bfd7f3c79364406d0d5cb187e289a34d4889566ce2"),
    ("ecb(serpent)", 32, 0, "46c27c766a12a7e97837a244d4a0fe5948923b1c62b0336fb4630e474014d34f"),
    ("cbc(serpent)", 32, 16, "aef4e04a64cd9d2390e20e5ef2d1ff2f770a5290bbfea963caf3e4e12a0a2944"),
    ("ctr(serpent)", 32, 16, "6a9899ecfacb5abe76cbe861f365dcde012bfbca4b9a2849b6447715d5f10fe0a1b637a4065303"),
    ("cts(cbc(serpent))", 32, 16, "aef4e04a64cd9d2390e20e5ef2d1ff2f13108c7f39d93b16901826bf6b529510770a5290bbfea9"),
    ("xts(serpent)", 64, 16, "81b43a42d85e71986bf32d8336ae2293ec09958ab60f26aca8a676c57a4a59187bb31ef8e343a0"),
    ("lrw(serpent)", 48, 16, "f547caf3306b334f93226d0045cf89807dd8bd6e6af3b39a519a00cb8c0cfd61bba8b46b9d6fb09e3b3098c915037e47"),
    ("essiv(cbc(serpent),sha256)", 32, 16, "294540cc02fe92ac9bd3350539e8aa31634051c4df1cbb9ed4879bc60e156b99"),
    ("ecb(serpent)", 16, 0, "03a3ab37452581dcaf5f07847c5483a3b3f9e49ea809d2c7c978b312cd5cfc46"),
    ("cbc(serpent)", 16, 16, "9cbba21c4ad3160cfa2119f4a8e181e111c0ab4963eb4b04322fa8bb14e02949"),
    ("ctr(serpent)", 16, 16, "26fff6dc17e0922c47201b4599200260c97d4bd2d0464c7e4d1689018807c82a4cd5539c155e73"),
    ("cts(cbc(serpent))", 16, 16, "9cbba21c4ad3160cfa2119f4a8e181e1c3defdc89c0691a52a4c4e1668e266e411c0ab4963eb4b"),
    ("xts(serpent)", 32, 16, "ebb2521cb7addd8f323356bf89da0ecbb5595003c1b5c570ebbf2d4a7c8b14aeed89915b478d3c"),
    ("lrw(serpent)", 32, 16, "77a5cc4aa2de2db6660cfef85cad6cc8b0c83524f11f0e776a1bce3d075dad6bbe45d8b7a0b159ac459445ceebd73385"),
    ("essiv(cbc(serpent),sha256)", 16, 16, "5d07329676dcfe0a648ed39d167ed69f7017a41ed9dda4ae75781e23d56ce6b3"),
    ("ecb(serpent)", 24, 0, "1ea490d60c8960b78697a4a67cdcbf6b55e2d1776166491f022f57c6ed7ab92b"),
    ("cbc(serpent)", 24, 16, "a323fe52e800cc5e6a99cbed5f83c755969b8a9d2ab82b7dc9c2194f88d699e4"),
    ("ctr(serpent)", 24, 16, "9e717a1624dc8a3d0c9e6bb9dab5e90bcf82801902d93fa4a30c298a5e235db6840b0b44925ef3"),
    ("cts(cbc(serpent))", 24, 16, "a323fe52e800cc5e6a99cbed5f83c755046947af55b608c95eb981d77537022a969b8a9d2ab82b"),
    ("xts(serpent)", 48, 16, "bad2ca465d114f36d46475cb08423e1c7b09307893b6664060162624a1cef48a9a4d235f9dd216"),
    ("lrw(serpent)", 40, 16, "78fe6b19ff3ab96fcb613ef4362978a1b67437306f97a61feb07247c7f5a141456e80a26de01c41f8aa3ca1f794f69a0"),
    ("essiv(cbc(serpent),sha256)", 24, 16, "ec4f16b73baf728c7cc673023e4160ca9282c4fecd365e23dd6eec027ecf5e28"),
    ("ecb(twofish)", 32, 0, "2710b39a28cb351ba390fa04bfe5c862d2d4168f60f754d97dbc062e079a5beb"),
    ("cbc(twofish)", 32, 16, "a9bf9ae3f6b27568f3aaf3dc475b1319c7a0f58c2624626241c03064fc0de05c"),
    ("ctr(twofish)", 32, 16, "a5590ad0a4470d9490932d7c0834ba20c7c910a9f9636fa558edd6de6a3b8a3e3376e8a171b96f"),
    ("cts(cbc(twofish))", 32, 16, "a9bf9ae3f6b27568f3aaf3dc475b13198121284f48e1bfc25e3d33307bd4c8c6c7a0f58c262462"),
    ("xts(twofish)", 64, 16, "4fc4e4626774bf39990f9fd82d69abc2b032fcfe4454bbfcda103bf95b9d0fac7d0e6c45766c12"),
    ("lrw(twofish)", 48, 16, "cb631f50b686a2eb720790077019494050deba1f3125187846408d4b418287586d7a3648119321d850477ab90e7367e3"),
    ("essiv(cbc(twofish),sha256)", 32, 16, "7cbf107614201c21f646bfef16cea03d4298cd111c913e713eb7bc22e436cd18"),
    ("ecb(twofish)", 16, 0, "b705738ab270018524255b2f85cec60093061bad7dd9c8d197e5dd9e2becc078"),
    ("cbc(twofish)", 16, 16, "d042c13face24fba8f9a540697a1724fd2c36e9af82ca43b0cba26b765661c21"),
    ("ctr(twofish)", 16, 16, "8d20b317f91d7e5b8d641c7ff5f04972af1d464534bef51a20aab5eafbcd713a365f449b6b7d85"),
    ("cts(cbc(twofish))", 16, 16, "d042c13face24fba8f9a540697a1724f34b22ab55718109ca3c91630f74b30aed2c36e9af82ca4"),
    ("xts(twofish)", 32, 16, "d724acf979ac19a65b6a232f568d3f2765a09ea7ec5f2110972d9568894ad05151469ded5bbce3"),
    ("lrw(twofish)", 32, 16, "b043f4fa46c28d0ded53cd7254889f5d18cce3a23a834d18d0575eea513ecdbbaa129784d77e4981ca88397a2c2cda85"),
    ("essiv(cbc(twofish),sha256)", 16, 16, "aa682239d666f57204fa3881e24be53cc6029162bde144a09a17a21eddc31558"),
    ("ecb(twofish)", 24, 0, "271867c3097554fd781a8565ac264405ea7d8da9f0b9f015b03865e2b5e4e8e5"),
    ("cbc(twofish)", 24, 16, "cca355ca03a16c33b8ce37cdbac473749163f74aa3ce09a8cc31697c5f15cd6f"),
    ("ctr(twofish)", 24, 16, "3efcba87cd5e03cf2003f09e5ed42bf629629ae32d7b1471040e8d410b9889897f889d93756932"),
    ("cts(cbc(twofish))", 24, 16, "cca355ca03a16c33b8ce37cdbac47374fae27e745168594de6f0407d185d38649163f74aa3ce09"),
    ("xts(twofish)", 48, 16, "dba5ba4c9408364b66041beb83bb27a0b94dc0eaa17f4be3905debc856722a81bd68ae9d7b5925"),
    ("lrw(twofish)", 40, 16, "e8abf3dc07867af160466a245745d2fb521f6f0ffed343d2826d02baee927c49843a242995ae2cc68d50b645ee89c0cd"),
    ("essiv(cbc(twofish),sha256)", 24, 16, "e127493155a73c3fea99a0d470de06698eeab642574af98734140c998c7537e5"),
    ("ecb(camellia)", 32, 0, "3817ca1e02195cb3237ead7a88e191841d930f9a69c9bc9130976ae0b3741d43"),
    ("cbc(camellia)", 32, 16, "8f297f4b3a61991b4f6fabc158df82337acf88fc5dd94b21181d72e26eb8f0b9"),
    ("ctr(camellia)", 32, 16, "dc91e4da12ca59eda029d25f863ead1afa12e922288b7c7d2542ba1ad3e809bb48171f402521d9"),
    ("cts(cbc(camellia))", 32, 16, "8f297f4b3a61991b4f6fabc158df82335b629a1a5e8145f8e996c017603b2ad37acf88fc5dd94b"),
    ("xts(camellia)", 64, 16, "b073730bf68cb10de8c8d4781cb76656432ba3318b8de7383277cc4d3cb788a8fc02572c4bbccc"),
    ("lrw(camellia)", 48, 16, "77aeff84786c5c084c0d2563aac30c5ca3177094ce4411aa30d3129cdb9fe7ea631e3a122476266d983e63bad17f3d55"),
    ("essiv(cbc(camellia),sha256)", 32, 16, "9963c82d53d4f071c790774c3780d258fe6e31693cec1e2da4d72af5e0e9d861"),
    ("ecb(camellia)", 16, 0, "3591e5ae4088bebcc34f6a8cda2d9782ac3fee8c36ec56f03f9c7a35434c7c7d"),
    ("cbc(camellia)", 16, 16, "1fe06d319db270595226f73fd043ca24299548bec8f36f0ff3b0eb51bee63075"),
    ("ctr(camellia)", 16, 16, "e5952b8819bde6fdaa32c0171f67ab29ca73eff749f3f95ff33ffb61fecf121628eeb9a69cee7e"),
    ("cts(cbc(camellia))", 16, 16, "1fe06d319db270595226f73fd043ca244d7f07f20a8f36766203a05c006965df299548bec8f36f"),
    ("xts(camellia)", 32, 16, "46fd6b0b65c099884d5caeb2a0c457c3c4c9ea2f8d97efc8c3093e0fa5ff50b2f4b64b475b3956"),
    ("lrw(camellia)", 32, 16, "de7d773546b41a698a08199faafccee357afb64b68e56dcdadf39f71fa222edf18e8280b35462d3561b951585c04bb17"),
    ("essiv(cbc(camellia),sha256)", 16, 16, "e9b6d4919e9986f2aaceca7299cb21ec349f7be9bf3674a83b081bbeec56a2ee"),
    ("ecb(camellia)", 24, 0, "4dd1fd2f1cf6101b9381cbf643047becd8e4a3b3ea19c64560ef0d9ed3b6826c"),
    ("cbc(camellia)", 24, 16, "a1bc75bbf546bec13f30199ba07d3961a2aef2bd848bda9a587f843831fb6ac4"),
    ("ctr(camellia)", 24, 16, "249376a42b4d22873ac479bbb6c8c8cc16c78508b4268a5fda000e73195318aff687f94f724c67"),
    ("cts(cbc(camellia))", 24, 16, "a1bc75bbf546bec13f30199ba07d3961a4ec2eae9812dbaa54e8e20fabca5917a2aef2bd848bda"),
    ("xts(camellia)", 48, 16, "e0ced851383e536f2062bd900f1d7da12871e2bafad9b7cf52e6dac459159870f1cc783ae6632f"),
    ("lrw(camellia)", 40, 16, "39332e9637f094c89f9f86ecbb82c8b8187ab42c4d796c12f899d37aea2253cbdcd065da6055383658d01440b5138353"),
    ("essiv(cbc(camellia),sha256)", 24, 16, "994d44ab28ae0f29b61e4eaa5e605901b36f000dd9592bb91db2a85b60f958ec"),
    ("essiv(xts(aes),sha256)", 64, 16, "7a774269e3ccef80f7ac16de9d5462283ee88486404f90ab86c9911917c96a26d8d09b34e3e645"),
    ("essiv(xts(aes),sha256)", 32, 16, "cd2dd380892a19478918ec91f393a93f9e33d2a103e65eb46b1c001ff279382dd47b1be4c9d53c"),
    ("essiv(xts(aes),sha256)", 48, 16, "d18ed60e04eadd1a6f79f2be7dc0d7a031a8ab8e7ea4057d6cb28ce5dc5bd6ca1e459ce6999dbb"),
    ("essiv(xts(cast6),sha256)", 64, 16, "f993feee4572bb723e2f0ead068ad05d33e329a53d7a9c41cb644a00012e81693bc75185817f3c"),
    ("essiv(xts(serpent),sha256)", 64, 16, "16dbf8aa137b069d09ebb74f7c4d48fa84a7b9f6ab2c1f4fb47335c5a99b2251e6a8e1f45d77a6"),
    ("ecb(cast6)", 32, 0, "a040b63a0d8e77664311eb384aa17351702bd36c0870aef681e0b9091d62c2a9"),
    ("cbc(cast6)", 32, 16, "4dbea4ec4dfd46b7ee9e01da86c15c39315bda4a9a62c2786ccd194149b7fa8f"),
    ("ctr(cast6)", 32, 16, "a3a857ebe2cf8251b50f5dbcc785308852ffd6f44f8d9bab9cd12b044de69c07de3c38863f02d4"),
    ("cts(cbc(cast6))", 32, 16, "4dbea4ec4dfd46b7ee9e01da86c15c39ccda59bb31fc1b6208a8c7a7749b1122315bda4a9a62c2"),
    ("xts(cast6)", 64, 16, "cd39985330934dfd4e3e30277db24a6fad92bba38e542662a1f67471fe77ccb60ed61432ecdb92"),
    ("lrw(cast6)", 48, 16, "3aab928dbaea07a8398b4d3b86ef00aaa5902164ffae824018aee38dc22dd710a647cdb37c11f6d866b69dd459d5dd8c"),
    ("essiv(cbc(cast6),sha256)", 32, 16, "e13bdcbdf30140c363c617a08a0736934b3fb751adb3181f6ce1f958d947d19a"),
    ("ecb(cast6)", 16, 0, "d3b75b75c271a6fff69db84818818030b5323ebc230f85e981ac5c214081c675"),
    ("cbc(cast6)", 16, 16, "90f2f08d2446b5b2d828a9c7075d31cc3fa5b587785ef721d429f23df98ddbed"),
    ("ctr(cast6)", 16, 16, "687f41fdef247720d2aa306930f97e4c891649dc27875ef85ee367c8ab77aaf831562b35a061c7"),
    ("cts(cbc(cast6))", 16, 16, "90f2f08d2446b5b2d828a9c7075d31cce72a94b0d50b7d97b350af3122f9ec2b3fa5b587785ef7"),
    ("xts(cast6)", 32, 16, "1da41ed50bb3a77599611d518e860dc6e4f6020448ddad3c554767ec106450ebfce4cacd8bf6d9"),
    ("lrw(cast6)", 32, 16, "c2925718a2c362f278c32d34ce4a53845de1ba6523e604d8d75f5ae10d1599ce7c29bc69a8c05111c35f5432a175b551"),
    ("essiv(cbc(cast6),sha256)", 16, 16, "fe2df371c0fcf089f1cac55536e3d2ecfd8a4c9c9374dc1886ea6dcac2a913b8"),
    ("ecb(cast6)", 24, 0, "96d132b4d188688f00eb869b5486a9370329164e1576f0fa0e58dd23e83cff51"),
    ("cbc(cast6)", 24, 16, "13f2efbe94a8fcd6aa47119495f8e5e2657ec4036f52636e540d7b591a4c0552"),
    ("ctr(cast6)", 24, 16, "7ab2c1096d861b87692daaad867605191fca5ec3a158f73bd01be04610d2b50799b889cd4a67a6"),
    ("cts(cbc(cast6))", 24, 16, "13f2efbe94a8fcd6aa47119495f8e5e21797aae362e8beaca902b54c5fb53ab1657ec4036f5263"),
    ("xts(cast6)", 48, 16, "0f41f4aa7df018bccfe2b0388576615ad6b32606ea025e9e8e715035e0e84f717d3f790ffa2ed1"),
    ("lrw(cast6)", 40, 16, "277dc94d980fcb89a587af8f990b6063dab97ffb6204272bdd5bc332bd470c0dc0efa9225dae4466ee06b9fce9f0bf6d"),
    ("essiv(cbc(cast6),sha256)", 24, 16, "363682ef96f63e550b98173ee433018e377fa7e2b4a623fa61581995cad32b23"),
    ("ecb(cast5)", 16, 0, "12fdf314aa5b7980132c68d01dae13360bbd77a7a932da6ed5fed41540d0b98d"),
    ("cbc(cast5)", 16, 8, "079850225dbf5f69bc412d19c3786e1721cf5f0e0241c503a56a74724ba18792"),
    ("ctr(cast5)", 16, 8, "d7ee7a618d829c7d9b5e32cb519ce9487a3227759835c9e0217c6e9ef03657c208c41df35f759a"),
    ("ecb(des3_ede)", 24, 0, "e341179b99664458160324b95272bd6218bf080bc3db931beb58447627758971"),
    ("cbc(des3_ede)", 24, 8, "4c750ae9fabd34e567cb4c5a8e5dcfd3baf468099313ff1e354afaaa8baf84b6"),
    ("ctr(des3_ede)", 24, 8, "ac0d14ce339f7be4c8600f792561640895ac055f564a04c9e290c09f057717afc48006e4fa7589"),
    ("ecb(blowfish)", 32, 0, "ef8fc0f5c18cc62b13240481c41b489d492758121ce255eea055e42b5c1c9b08"),
    ("cbc(blowfish)", 32, 8, "7b1a8e0056acac7e5d12ec6c32daddf921cd7ca9d5c2b6dfb87bc82b89119675"),
    ("ctr(blowfish)", 32, 8, "db43d102910b60a81ccb4f52b0891ed4a708320d601d9b08cab6a953f013a2e785a1c16368eed0"),
    ("ecb(blowfish)", 16, 0, "2d5c963b3305854cb4014ebd83cd5f7f84b938bec6364e0a7a83fa76a0dadfe8"),
    ("cbc(blowfish)", 16, 8, "f990025b5c3b5a7482c66c77757476df761d4099d53f5ea862ea7b9c2fae2d96"),
    ("ctr(blowfish)", 16, 8, "926067b0d24fdebfc916a15c73abbad13b108da27b120b444f803832cbe4f66f611e616fe3a20a"),
    ("adiantum(xchacha12,aes)", 32, 32, "405ca1e2af17f546c1ae9e4378637d48e2de03e56cf872318d990e8df9806d2d246b2e87c1565c"),
    ("adiantum(xchacha20,aes)", 32, 32, "ea7615f9f9809ad6b41803fe4636413a777545971a4c7815fdc29cace5f8b708e86871ad00bef3"),
];

#[rustfmt::skip]
const OPENSSL: &[Row] = &[
    ("ecb(aria)", 32, 0, "2c23a6d52f6fc37aeeb754550f684b3bc12737332326f613cd5e2ffd826194e4"),
    ("cbc(aria)", 32, 16, "33c1e9b564e769f04b5b5ba36a4586e1f0a1f15ed26a34a79a87b683bc967d1d"),
    ("ctr(aria)", 32, 16, "09caa8b6caa610eb4f5c62f4559a01ce75a8ff0d2a2e2758ea7be5e9c1d55e774ff20e8d6fb282"),
    ("ecb(aria)", 16, 0, "f5dd8db8561311b22856db0dfc508c5ff499f6246cd7ee899c3fb2b9c7b8d049"),
    ("cbc(aria)", 16, 16, "ab6b4edc986192dd763a78106fbdeccdf2430b2975db269fc7d9b175e73ea89a"),
    ("ctr(aria)", 16, 16, "ae36afe5e7fad932720e1b60356a5ffb6fd97a8e6b939184408fba1b83e4a62a3c284ac1894940"),
    ("ecb(aria)", 24, 0, "854f1475650798d6c48841a94c0f01047189bfd70ed0902380874c1592d207b0"),
    ("cbc(aria)", 24, 16, "3be7e2fde74210c55cedeeb5d69772636386e421a40d35b1730edddcbbbc95a7"),
    ("ctr(aria)", 24, 16, "f853988d7aa9c1c151e71f0cdc2c8c25f58d615a1c8fd84b2596c3571984687bd6442f2a050e40"),
    ("ecb(sm4)", 16, 0, "ba256a52e62a336bf97fb44fc2bc3819644961b34a90de5f07cf51b2ec75b0a4"),
    ("cbc(sm4)", 16, 16, "9399fdf10713e2f5a876fce864a876297a83b6c23414572488d8a2ba25a6376a"),
    ("ctr(sm4)", 16, 16, "7ba0139f909f18fc5a54f0f51799017ccc4a59afc5061c04e43053ac742d06a8fd497b4582d5d4"),
];
