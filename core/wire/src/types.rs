//! Type numbers of the packet format and of NDNLPv2.

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        $($(#[$doc])* #[doc = concat!("TLV-TYPE ", $number, ": ", $text, ".")]
        pub const $name: u32 = $number;)*

        /// The name of a type number of the packet format or NDNLPv2, or `element`.
        pub const fn type_name(typ: u32) -> &'static str {
            match typ {
                $($name => $text,)*
                _ => "element",
            }
        }
    };
}

types! {
    IMPLICIT_SHA256_DIGEST_COMPONENT = 1, "ImplicitSha256DigestComponent";
    PARAMETERS_SHA256_DIGEST_COMPONENT = 2, "ParametersSha256DigestComponent";
    INTEREST = 5, "Interest";
    DATA = 6, "Data";
    NAME = 7, "Name";
    GENERIC_NAME_COMPONENT = 8, "GenericNameComponent";
    NONCE = 10, "Nonce";
    INTEREST_LIFETIME = 12, "InterestLifetime";
    MUST_BE_FRESH = 18, "MustBeFresh";
    META_INFO = 20, "MetaInfo";
    CONTENT = 21, "Content";
    SIGNATURE_INFO = 22, "SignatureInfo";
    SIGNATURE_VALUE = 23, "SignatureValue";
    CONTENT_TYPE = 24, "ContentType";
    FRESHNESS_PERIOD = 25, "FreshnessPeriod";
    FINAL_BLOCK_ID = 26, "FinalBlockId";
    SIGNATURE_TYPE = 27, "SignatureType";
    KEY_LOCATOR = 28, "KeyLocator";
    KEY_DIGEST = 29, "KeyDigest";
    FORWARDING_HINT = 30, "ForwardingHint";
    KEYWORD_NAME_COMPONENT = 32, "KeywordNameComponent";
    CAN_BE_PREFIX = 33, "CanBePrefix";
    HOP_LIMIT = 34, "HopLimit";
    APPLICATION_PARAMETERS = 36, "ApplicationParameters";
    SIGNATURE_NONCE = 38, "SignatureNonce";
    SIGNATURE_TIME = 40, "SignatureTime";
    SIGNATURE_SEQ_NUM = 42, "SignatureSeqNum";
    INTEREST_SIGNATURE_INFO = 44, "InterestSignatureInfo";
    INTEREST_SIGNATURE_VALUE = 46, "InterestSignatureValue";
    SEGMENT_NAME_COMPONENT = 50, "SegmentNameComponent";
    BYTE_OFFSET_NAME_COMPONENT = 52, "ByteOffsetNameComponent";
    VERSION_NAME_COMPONENT = 54, "VersionNameComponent";
    TIMESTAMP_NAME_COMPONENT = 56, "TimestampNameComponent";
    SEQUENCE_NUM_NAME_COMPONENT = 58, "SequenceNumNameComponent";
    LP_FRAGMENT = 80, "Fragment";
    LP_SEQUENCE = 81, "Sequence";
    LP_FRAG_INDEX = 82, "FragIndex";
    LP_FRAG_COUNT = 83, "FragCount";
    LP_PIT_TOKEN = 98, "PitToken";
    LP_PACKET = 100, "LpPacket";
    VALIDITY_PERIOD = 253, "ValidityPeriod";
    NOT_BEFORE = 254, "NotBefore";
    NOT_AFTER = 255, "NotAfter";
    ADDITIONAL_DESCRIPTION = 258, "AdditionalDescription";
    DESCRIPTION_ENTRY = 512, "DescriptionEntry";
    DESCRIPTION_KEY = 513, "DescriptionKey";
    DESCRIPTION_VALUE = 514, "DescriptionValue";
    LP_NACK = 800, "Nack";
    LP_NACK_REASON = 801, "NackReason";
    LP_INCOMING_FACE_ID = 812, "IncomingFaceId";
    LP_NEXT_HOP_FACE_ID = 816, "NextHopFaceId";
    LP_CACHE_POLICY = 820, "CachePolicy";
    LP_CACHE_POLICY_TYPE = 821, "CachePolicyType";
    LP_CONGESTION_MARK = 832, "CongestionMark";
    LP_ACK = 836, "Ack";
    LP_TX_SEQUENCE = 840, "TxSequence";
    LP_NON_DISCOVERY = 844, "NonDiscovery";
    LP_PREFIX_ANNOUNCEMENT = 848, "PrefixAnnouncement";
    LP_SHARED_MEMORY = 944, "SharedMemory";
    LP_PADDING = 948, "Padding";
    LP_UNAVAILABLE = 952, "Unavailable";
    LP_RUN_OFFER = 956, "RunOffer";
    LP_RUN = 957, "Run";
    LP_RUN_TOKENS = 959, "RunTokens";
    HICN_PAYLOAD = 960, "HicnPayload";
    HICN_PATH_LABEL = 962, "HicnPathLabel";
    HICN_ALGORITHM = 964, "HicnAlgorithm";
    HICN_REQUEST = 966, "HicnRequest";
}

/// Whether a decoder must reject an element of this type that it does not recognise. That is so for
/// types up to 31 and for all odd types.
#[inline]
pub const fn is_critical(typ: u32) -> bool {
    typ <= 31 || typ & 1 == 1
}
